#!/usr/bin/env python3
"""test_serve_process: `zerope serve` as a process among others: TLS with clients that check
certificates, certificates read anew under load, sockets of systemd and what it is told, unix sockets.
Usage: test_serve_process.py ZEROPE MODEL"""
import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

MODEL = sys.argv.pop()
ZEROPE = sys.argv.pop()
PATIENCE = 100  # seconds; ends what hangs
LONG = {"prompt": "Hello", "max_tokens": 60000, "ignore_eos": True, "stream": True}
SHORT = {"prompt": "Hello", "max_tokens": 3, "ignore_eos": True}


class Connection(http.client.HTTPConnection):
    """Over a socket that is there."""

    def __init__(self, sock):
        super().__init__("localhost", timeout=PATIENCE)
        sock.settimeout(PATIENCE)
        self.sock = sock


def dial(address):
    if isinstance(address, str):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address)
        return sock
    return socket.create_connection(("127.0.0.1", address), PATIENCE)


def ask(sock, method, path, body=None):
    client = Connection(sock)
    client.request(method, path, json.dumps(body) if body else None, {"connection": "close"})
    answer = client.getresponse()
    text = answer.read()
    client.close()
    return answer.status, text


class Stream:
    """A stream of events that is under way."""

    def __init__(self, sock, body):
        self.client = Connection(sock)
        self.client.request("POST", "/v1/completions", json.dumps(body))
        self.answer = self.client.getresponse()
        assert self.answer.status == 200, self.answer.read()

    def event(self):
        """The next event's data; None: the end."""
        for line in iter(self.answer.readline, b""):
            if line.startswith(b"data: "):
                return line[6:].strip()
        return None

    def close(self):
        self.answer.close()
        self.client.close()


class Server:
    all = []

    def __init__(self, *options, fds=(), pool=("--kv-tokens", "300000"), **environment):
        """fds: sockets that listen, as systemd hands them over."""
        self.lines, self.news = [], threading.Condition()
        command = [ZEROPE, "serve", MODEL, "-c", "65536", "-np", "8", *pool,
                   "--log-format", "json", "--log-level", "debug", *options]
        if fds:
            # systemd's protocol: descriptors from 3 on, and the process they are for.
            command = ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", *command]
            environment["LISTEN_FDS"] = str(len(fds))
        self.fds = [f.fileno() for f in fds]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                        env={**os.environ, **environment}, close_fds=not fds,
                                        preexec_fn=self.place)
        Server.all.append(self.process)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def place(self):
        high = [os.dup2(fd, 100 + i) for i, fd in enumerate(self.fds)]
        for i, fd in enumerate(high):
            os.dup2(fd, 3 + i)

    def read(self):
        for line in self.process.stderr:
            with self.news:
                self.lines.append(line.decode())
                self.news.notify_all()
        with self.news:
            self.lines.append("")  # the end
            self.news.notify_all()

    def events(self, name):
        return [json.loads(line) for line in self.lines if f'"event":"{name}"' in line]

    def logged(self, name, n=1):
        """The n-th record of an event, once it is there."""
        with self.news:
            there = self.news.wait_for(lambda: len(self.events(name)) >= n or "" in self.lines,
                                       PATIENCE)
            assert there and len(self.events(name)) >= n, (name, n, self.lines)
            return self.events(name)[n - 1]

    def port(self):
        return int(self.logged("ready")["url"].rsplit(":", 1)[1])

    def tell(self, number):
        self.process.send_signal(number)

    def end(self, number=signal.SIGTERM):
        """Its exit code."""
        if number is not None:
            self.tell(number)
        code = self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        self.process.stderr.close()
        return code


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)

    def tearDown(self):
        for process in Server.all:  # those that a failed test left
            if process.poll() is None:
                process.kill()
        self.folder.cleanup()


class Tls(Folder):
    def make_certificate(self, name):
        """NAME.pem and NAME.key, for localhost; it signs itself."""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                        "-addext", "subjectAltName=DNS:localhost", "-out", self.path / f"{name}.pem",
                        "-keyout", self.path / f"{name}.key"], check=True, capture_output=True)

    def install(self, name):
        for end in ("pem", "key"):
            (self.path / f"new.{end}").write_bytes((self.path / f"{name}.{end}").read_bytes())
            os.replace(self.path / f"new.{end}", self.path / f"used.{end}")

    def begin(self):
        self.make_certificate("first")
        self.make_certificate("second")
        self.install("first")
        self.server = Server("--port", "0", "--tls-cert", str(self.path / "used.pem"), "--tls-key",
                             str(self.path / "used.key"))
        self.at = self.server.port()

    def dial(self, name):
        """A client that trusts one certificate alone, and the name in it."""
        context = ssl.create_default_context(cafile=self.path / f"{name}.pem")
        return context.wrap_socket(dial(self.at), server_hostname="localhost")

    def test_certificates_are_read_anew_under_load(self):
        self.begin()
        self.assertTrue(self.server.logged("ready")["url"].startswith("https://127.0.0.1:"))
        stream = Stream(self.dial("first"), LONG)
        self.assertIn(b"text_completion", stream.event())
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.dial("second")

        # Clients that take either certificate, one connection after the other.
        stop, done, failed = threading.Event(), [0, 0, 0], []
        both = self.path / "both.pem"
        both.write_bytes(b"".join((self.path / f"{n}.pem").read_bytes()
                                  for n in ("first", "second")))

        def load(i):
            while not stop.is_set() and not failed:
                try:
                    status, text = ask(self.dial("both"), "POST", "/v1/completions", SHORT)
                    if status != 200:
                        failed.append((status, text))
                    done[i] += 1
                except Exception as error:  # whatever it is, it is a request that failed
                    failed.append(repr(error))

        clients = [threading.Thread(target=load, args=(i,)) for i in range(len(done))]
        for client in clients:
            client.start()
        for n, (name, other) in enumerate((("second", "first"), ("first", "second"),
                                           ("second", "first"))):
            self.install(name)
            before = sum(done)
            self.server.tell(signal.SIGHUP)
            record = self.server.logged("reload", n + 1)
            self.assertEqual((record["what"], record["done"]), ("certificate", True))
            self.assertEqual(ask(self.dial(name), "GET", "/healthz")[0], 200)
            with self.assertRaises(ssl.SSLCertVerificationError):
                self.dial(other)
            self.assertIsNotNone(stream.event())  # it began under the first, and goes on
            while sum(done) < before + 6 and not failed:
                stream.event()
        # What cannot be read changes nothing.
        (self.path / "used.pem").write_text("no certificate")
        self.server.tell(signal.SIGHUP)
        record = self.server.logged("reload", 4)
        self.assertEqual((record["what"], record["done"]), ("certificate", False))
        self.assertIn("used.pem: not a PEM certificate", record["error"])
        self.assertEqual(ask(self.dial("second"), "GET", "/healthz")[0], 200)
        stop.set()
        for client in clients:
            client.join(PATIENCE)
        self.assertEqual(failed, [])
        stream.close()
        self.assertEqual(self.server.end(), 0)

    def test_a_stream_ends_whole_behind_tls(self):
        self.begin()
        stream = Stream(self.dial("first"), {**LONG, "max_tokens": 300})
        self.server.tell(signal.SIGTERM)  # and is finished though the server was told to end
        events = list(iter(stream.event, None))
        self.assertEqual(events[-1], b"[DONE]")
        self.assertEqual(json.loads(events[-2])["choices"][0]["finish_reason"], "length")
        stream.close()
        self.assertEqual(self.server.end(None), 0)

    def test_plain_text_is_no_request(self):
        self.begin()
        with self.assertRaises((http.client.HTTPException, ConnectionError)):
            ask(dial(self.at), "GET", "/healthz")
        self.assertEqual(ask(self.dial("first"), "GET", "/healthz")[0], 200)
        self.assertEqual(self.server.end(), 0)


class Systemd(Folder):
    """The test is the service manager: it holds the sockets and hears what it is told."""

    def hear(self, words):
        """The next notice but those of the watchdog, unless it is what is waited for."""
        while True:
            text = self.notices.recv(1000).decode()
            if words.startswith("WATCHDOG") or not text.startswith("WATCHDOG=1"):
                self.assertEqual(text.split("\n")[0], words)
                return text

    def begin(self, *listeners):
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notices.settimeout(PATIENCE)
        self.notices.bind(str(self.path / "notify"))
        return Server(fds=listeners, NOTIFY_SOCKET=str(self.path / "notify"),
                      WATCHDOG_USEC="300000")

    def listen(self):
        tcp, unix = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
        unix.bind(str(self.path / "socket"))
        unix.listen()
        return tcp, unix

    def test_sockets_notices_and_the_watchdog(self):
        listeners = self.listen()
        port, path = listeners[0].getsockname()[1], str(self.path / "socket")
        early = dial(port)  # before there is a server
        server = self.begin(*listeners)
        self.hear("READY=1")
        self.assertEqual(ask(early, "GET", "/readyz")[0], 200)
        for address in (port, path):
            status, text = ask(dial(address), "POST", "/v1/completions", SHORT)
            self.assertEqual(status, 200, text)
        stream = Stream(dial(path), LONG)
        for _ in range(3):  # while it computes
            self.hear("WATCHDOG=1")
            self.assertIsNotNone(stream.event())
        server.tell(signal.SIGHUP)
        self.assertIn("MONOTONIC_USEC=", self.hear("RELOADING=1"))
        self.hear("READY=1")
        server.tell(signal.SIGTERM)
        self.hear("STOPPING=1")
        stream.close()  # nothing is under way any more
        self.assertEqual(server.end(None), 0)
        # The sockets are the manager's: the next server takes those who came meanwhile.
        waiting = dial(path), dial(port)
        self.notices.close()
        os.unlink(self.path / "notify")
        server = self.begin(*listeners)
        self.hear("READY=1")
        for sock in waiting:
            self.assertEqual(ask(sock, "GET", "/readyz")[0], 200)
        self.assertEqual(server.end(), 0)
        self.assertTrue(os.path.exists(path))
        self.notices.close()
        for listener in listeners:
            listener.close()

    def test_what_is_no_listener_is_refused(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            server = self.begin(udp)
            self.assertNotEqual(server.end(None), 0)
            self.assertIn("descriptor 3 from systemd is not a stream socket", "".join(server.lines))
        self.notices.close()


class Unix(Folder):
    def test_a_socket_of_its_own(self):
        path = str(self.path / "socket")
        server = Server("--unix", path)
        self.assertEqual(server.logged("ready")["url"], f"unix:{path}")
        stream = Stream(dial(path), {**LONG, "max_tokens": 20})
        self.assertEqual(list(iter(stream.event, None))[-1], b"[DONE]")
        stream.close()
        second = Server("--unix", path)
        self.assertNotEqual(second.end(None), 0)
        self.assertIn("another program listens there", "".join(second.lines))
        server.end(signal.SIGKILL)
        self.assertTrue(os.path.exists(path))
        server = Server("--unix", path)  # nobody is behind it: it is taken over
        server.logged("ready")
        self.assertEqual(ask(dial(path), "GET", "/readyz")[0], 200)
        self.assertEqual(server.end(), 0)
        self.assertFalse(os.path.exists(path))


class Restart(unittest.TestCase):
    def test_the_pool_costs_nothing_until_it_is_used(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            server = Server("--port", "0", "--admin-open", pool=["--kv-memory", "1024"])
            at = server.port()
            status = json.loads(ask(dial(at), "GET", "/admin/status")[1])
            pool, resident = (status["models"]["baseline"]["kv_bytes"],
                              status["server"]["resident_bytes"])
            self.assertGreater(pool, 1000 << 20)
            self.assertLess(resident, pool // 2)  # far less, but for sanitizers
            server.end(number)


if __name__ == "__main__":
    unittest.main()
