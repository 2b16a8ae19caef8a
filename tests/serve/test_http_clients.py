#!/usr/bin/env python3
"""test_http_clients: what clients that were not written here make of the HTTP server: Python's
http.client, and curl. Usage: test_http_clients.py ECHO_SERVER"""
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

SERVER = sys.argv.pop()
PATIENCE = 60  # seconds; ends what hangs


class Server:
    def __init__(self, *arguments):
        self.process = subprocess.Popen([SERVER, *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def line(self):
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.stdin.close()
        rest = self.process.stdout.read()
        assert self.process.wait(PATIENCE) == 0
        self.process.stdout.close()
        return rest


class Plain(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.client = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)

    def tearDown(self):
        self.client.close()
        self.server.end()

    def ask(self, method, path, body=None, headers=None, **more):
        self.client.request(method, path, body, headers or {}, **more)
        answer = self.client.getresponse()
        return answer, answer.read()

    def test_one_connection_serves_many_requests(self):
        for size in (0, 1, 1000, 1 << 20):
            body = os.urandom(size)
            answer, back = self.ask("POST", "/echo", body, {"content-type": "x/y"})
            self.assertEqual((answer.status, answer.version, back), (200, 11, body))
            self.assertEqual(answer.getheader("content-type"), "x/y")
        answer, back = self.ask("HEAD", "/echo")
        self.assertEqual((answer.status, back), (200, b""))
        socket_of = self.client.sock
        self.ask("GET", "/nowhere")
        self.assertIs(self.client.sock, socket_of)

    def test_chunked_request(self):
        parts = [b"one", b"", b"two" * 1000, b"3"]
        answer, back = self.ask("POST", "/echo", iter(parts), encode_chunked=True,
                                headers={"transfer-encoding": "chunked"})
        self.assertEqual((answer.status, back), (200, b"".join(parts)))

    def test_errors_are_json(self):
        answer, back = self.ask("GET", "/nowhere", headers={"x-request-id": "my-id"})
        self.assertEqual(answer.status, 404)
        self.assertEqual(answer.getheader("x-request-id"), "my-id")
        self.assertEqual(json.loads(back)["error"]["code"], "not_found")
        answer, back = self.ask("DELETE", "/echo")
        self.assertEqual((answer.status, answer.getheader("allow")), (405, "GET, HEAD, POST, OPTIONS"))

    def test_events(self):
        answer, text = self.ask("GET", "/events?n=100")
        self.assertEqual(answer.getheader("content-type"), "text/event-stream; charset=utf-8")
        self.assertEqual(answer.getheader("cache-control"), "no-store")
        events = text.decode().split("\n\n")
        self.assertEqual(events[7], 'event: count\ndata: {"n": 7}\ndata: line two')
        self.assertEqual(events[100:], ["data: [DONE]", ""])
        self.assertEqual(self.ask("GET", "/echo")[0].status, 200)

    def test_old_client(self):
        with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as old:
            old.sendall(b"GET /events?n=2 HTTP/1.0\r\n\r\n")
            text = b"".join(iter(lambda: old.recv(4096), b""))
        self.assertTrue(text.endswith(b"data: [DONE]\n\n"), text)
        self.assertNotIn(b"chunked", text)

    def test_client_that_leaves(self):
        self.client.request("POST", "/never", headers={"x-request-id": "leaver"})
        self.assertEqual(self.server.line(), "waits leaver")
        self.client.close()
        self.assertEqual(self.server.line(), "leaver POST /never 499 cut")
        self.assertEqual(self.server.line(), "gone leaver 0")

    def test_pages_of_other_origins(self):
        page = {"origin": "https://page.example", "access-control-request-method": "POST"}
        answer, _ = self.ask("OPTIONS", "/echo", headers=page)
        self.assertEqual(answer.status, 204)
        self.assertEqual(answer.getheader("access-control-allow-origin"), page["origin"])
        answer, _ = self.ask("OPTIONS", "/echo", headers=dict(page, origin="https://evil.example"))
        self.assertEqual(answer.status, 403)


class Draining(unittest.TestCase):
    def test_end_of_input_ends_the_server(self):
        server = Server()
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        client.request("GET", "/events?n=3", headers={"x-request-id": "last"})
        self.assertEqual(client.getresponse().read().count(b"event: count"), 3)
        self.assertIn("last GET /events 200\n", server.end())
        client.close()


@unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate")
class Tls(unittest.TestCase):
    def test_over_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            files = [os.path.join(folder, name) for name in ("cert.pem", "key.pem")]
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                            "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
                            "-out", files[0], "-keyout", files[1]], check=True,
                           capture_output=True)
            server = Server(*files)
            trust = ssl.create_default_context(cafile=files[0])
            client = http.client.HTTPSConnection("127.0.0.1", server.port, context=trust,
                                                 timeout=PATIENCE)
            for body in (b"x", os.urandom(1 << 20)):
                client.request("POST", "/echo", body)
                self.assertEqual(client.getresponse().read(), body)
            client.request("GET", "/events?n=50")
            self.assertEqual(client.getresponse().read().count(b"event: count"), 50)
            client.close()
            server.end()


@unittest.skipUnless(shutil.which("curl"), "no curl")
class Curl(unittest.TestCase):
    def curl(self, *arguments, data=None):
        run = subprocess.run(["curl", "-sS", "--max-time", str(PATIENCE), *arguments], input=data,
                             capture_output=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def test_curl(self):
        server = Server()
        base = "http://127.0.0.1:%d" % server.port
        body = os.urandom(1 << 20)  # curl expects 100-continue first
        self.assertEqual(self.curl("--data-binary", "@-", base + "/echo", data=body), body)
        head = self.curl("-i", "--http1.0", base + "/echo").decode()
        self.assertIn("\r\nconnection: close\r\n", head)
        self.assertIn("\r\n\r\n", self.curl("-I", base + "/echo").decode())
        self.assertEqual(self.curl("-N", base + "/events?n=5").count(b"event: count"), 5)
        self.assertEqual(self.curl("--http2", base + "/echo"), b"")  # offers, is not taken up
        refused = self.curl("-i", "--data-binary", "@-", base + "/echo", data=body + b"x").decode()
        self.assertTrue(refused.startswith("HTTP/1.1 413 "), refused)
        self.assertIn("larger than 1.0 MiB (1048576 bytes)", refused)
        server.end()


if __name__ == "__main__":
    unittest.main()
