#!/usr/bin/env python3
"""test_chat_server.py: `zerope chat --server` against `zerope serve`, and against servers that lie.

Usage: test_chat_server.py ZEROPE. The hostile servers are a few lines of sockets here."""
import contextlib
import itertools
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import running

ZEROPE = sys.argv.pop()
KEY = "3Q9-secret-of-ann"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"
MOST_MEMORY = 200 << 10  # KiB of a client, whatever comes


def environment(**more):
    kept = {k: v for k, v in os.environ.items()
            if not k.lower().endswith("_proxy") and not k.startswith("ZEROPE_")}
    return {**kept, **more}


def chat(url, text, *options, **variables):
    """(exit code, standard output, standard error)"""
    done = subprocess.run([ZEROPE, "chat", "--server", url, *map(str, options)],
                          input=text.encode(), capture_output=True, env=environment(**variables),
                          timeout=running.PATIENCE, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def answers(stdout):
    return [m["content"] for m in json.loads(stdout)["messages"] if m["role"] == "assistant"]


def chunk(text, **more):
    choice = {"index": 0, "delta": {"content": text}, **more}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


class Fake:
    """Answers each connection, once its request is read, with what the pieces are, until it is cut;
    `requests` are their bodies, `cut` is set when a client left before the pieces ended."""

    def __init__(self, pieces):
        self.pieces, self.requests, self.cut = pieces, [], threading.Event()
        self.heads, self.socket = [], socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                connection = self.socket.accept()[0]
                threading.Thread(target=self.talk, args=(connection,), daemon=True).start()

    def talk(self, connection):
        with connection:
            stream = connection.makefile("rb")
            head = list(iter(stream.readline, b"\r\n"))
            size = [int(row.split(b":")[1]) for row in head if row.lower().startswith(b"content-l")]
            self.heads.append(b"".join(head).decode())
            self.requests.append(json.loads(stream.read(size[0])))
            try:
                for piece in self.pieces():
                    connection.sendall(piece)
            except OSError:
                self.cut.set()


class RealServer(unittest.TestCase):
    def here(self, server, text, *options):
        done = subprocess.run([ZEROPE, "chat", running.SMALL, "--chat-template",
                               server.folder / "chat-template", "--json", "-q",
                               *map(str, options)], input=text, capture_output=True, text=True,
                              env=environment(), timeout=running.PATIENCE, check=True)
        return answers(done.stdout)

    def test_the_answers_are_those_of_the_model(self):
        cases = [("hi\nand\n", "-n", 8), ("hi\n", "-n", 8, "--system", "be brief"),
                 ("hi\n", "-n", 12, "--temp", 0.8, "--seed", 7, "--top-k", 20),
                 ("hi\n", "-n", 12, "--temp", 1.5, "--seed", 8, "--top-p", 0.7, "--min-p", 0.01),
                 ("hi\n", "-n", 12, "--repeat-penalty", 1.3),
                 ("hi\n", "-n", 20, "-j", '{"type": "boolean"}')]
        with running.Server(ZEROPE) as server:
            for text, *options in cases:
                code, out, err = chat(server.url, text, "--json", *options)
                self.assertEqual((code, answers(out)), (0, self.here(server, text, *options)), err)
            self.assertEqual(server.counted("zerope_requests_total", outcome="completed"),
                             len(cases) + 1)
            code, out, _ = chat(server.url, "/reset\nhi\n", "-n", 8, "-q")
            self.assertEqual((code, out.rstrip("\n")), (0, answers(
                chat(server.url, "hi\n", "-n", 8, "--json")[1])[0].rstrip("\n")))

    def test_refusals_come_in_the_servers_words(self):
        with running.Server(ZEROPE) as server:
            code, out, err = chat(server.url, "x" * 9000 + "\nhi\n", "-n", 4, "--json")
            self.assertIn("exceeds the available context size (", err)
            self.assertEqual((code, len(answers(out))), (3, 1))  # the second line has its answer
            code, _, err = chat(server.url, "hi\nho\n", "--model", "other")
            self.assertEqual(code, 1)
            self.assertEqual(err.count("the model 'other' is not served here"), 1)
        code, _, err = chat(server.url, "hi\n")  # it is gone
        self.assertEqual(code, 1)
        self.assertIn("Failed to connect", err)

    def test_keys(self):
        with running.Server(ZEROPE, keys=f"ann {KEY}\n") as server:
            path = server.folder / "my-key"
            path.write_text(KEY + "\n", encoding="utf-8")
            for options, variables, wanted in (
                    ([], {}, 1), (["--api-key", KEY], {}, 0), (["--api-key-file", path], {}, 0),
                    ([], {"ZEROPE_API_KEY": KEY}, 0),
                    (["--api-key", "not-" + KEY], {"ZEROPE_API_KEY": KEY}, 1)):
                code, out, err = chat(server.url, "hi\n", "-n", 4, *options, **variables)
                self.assertEqual(code, wanted, err)
                self.assertEqual("(HTTP 401)" in err, wanted == 1)
                self.assertNotIn(KEY, out + err)
            path.write_text(f"ann {KEY}\n", encoding="utf-8")
            code, _, err = chat(server.url, "hi\n", "--api-key-file", path)
            self.assertEqual(code, 3)
            self.assertNotIn(KEY, err)

    def test_certificates_and_names_are_checked(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = folder + "/cert.pem", folder + "/key.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days",
                            "2", "-subj", "/CN=localhost", "-addext",
                            "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
                           check=True, capture_output=True)
            with running.Server(ZEROPE, running.SMALL, "--tls-cert", cert, "--tls-key",
                                key) as server:
                named, numbered = (f"https://{host}:{server.port}"
                                   for host in ("localhost", "127.0.0.1"))
                code, _, err = chat(named, "hi\n", "-n", 4, "--ca-file", cert)
                self.assertEqual(code, 0, err)
                for url, *options in ((named,), (numbered, "--ca-file", cert)):
                    code, out, err = chat(url, "hi\n", "-n", 4, *options)
                    self.assertEqual((code, out.strip()), (1, ""))
                    self.assertIn("SSL", err)


def endless(*pieces):
    return lambda: itertools.chain(pieces[:-1], itertools.repeat(pieces[-1]))


def slowly(first, piece):
    def pieces():
        yield first
        while True:
            yield piece
            time.sleep(0.05)
    return pieces


def status(line, body, kind="application/json"):
    return lambda: [f"HTTP/1.1 {line}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                    f"Location: http://127.0.0.1:9/\r\n\r\n{body}".encode()]


# name: (what is sent, exit code, words on stderr)
HOSTILE = {
    "endless line": (endless(HEAD, b"data: ", b"x" * 65536), 1, "without a whole event"),
    "endless comments": (endless(HEAD, b": still here\n\n" * 1000), 1, "without a whole event"),
    "endless event": (endless(HEAD, b"data: y\n" * 1000), 1, "without a whole event"),
    "endless head": (endless(b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"z" * 1000 + b"\r\n"), 1,
                     "a head of more than 65536 bytes"),
    "endless line of a head": (endless(b"HTTP/1.1 200 OK\r\nX: ", b"z" * 65536), 1, "error:"),
    "endless 1xx": (endless(b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * 100), 1,
                    "a head of more than 65536 bytes"),
    "endless answer": (endless(HEAD, chunk("w" * 900000)), 1, "more than 16777216 bytes"),
    "endless refusal": (endless(b"HTTP/1.1 500 No\r\nContent-Type: text/plain\r\n\r\n",
                                b"oh no " * 1000), 1, "the server says: oh no oh no"),
    "slow head": (slowly(b"HTTP/1.1 200 OK\r\nX: ", b"z"), 1, "no sign of life for 1 seconds"),
    "slow line": (slowly(HEAD, b"d"), 1, "no sign of life for 1 seconds"),
    "slow refusal": (slowly(b"HTTP/1.1 500 No\r\n\r\n", b"d"), 1, "no sign of life for 1 seconds"),
    "silence": (slowly(b"", b""), 1, "no sign of life for 1 seconds"),
    "nothing": (lambda: [], 1, "Empty reply from server"),
    "no HTTP": (lambda: [b"220 mail.example ESMTP\r\n"], 1, "error:"),
    "broken JSON": (lambda: [HEAD, b"data: {\"choices\": [{\n\n"], 1, "not valid JSON"),
    "bytes": (lambda: [HEAD, b"data: {\"a\": \"\xff\"}\n\n"], 1, "not valid JSON"),
    "deep JSON": (lambda: [HEAD, b"data: " + b"[" * 500000 + b"\n\n"], 1, "not valid JSON"),
    "other types": (lambda: [HEAD, b"data: {\"choices\": [{\"delta\": 3}]}\n\n"], 1,
                    "\"delta\" of the wrong type"),
    "cut": (lambda: [HEAD, chunk("half an")], 1, "before its answer was whole"),
    "cut by length": (lambda: [HEAD.replace(b"Connection: close", b"Content-Length: 9999"),
                               chunk("half")], 1, "error:"),
    "error in the stream": (lambda: [HEAD, chunk("so "), b'data: {"error": {"message": '
                                     b'"out of\\u001b[2J memory"}}\n\n'], 1,
                            "the server ended the answer: out of [2J memory"),
    "page": (status("502 Bad Gateway", "<html>nginx</html>", "text/html"), 1,
             "the server refuses the request (HTTP 502)"),
    "words": (status("429 Slow", '{"error": {"message": "too\\u001b[31m many"}}'), 1,
              "the server says: too [31m many (HTTP 429)"),
    "elsewhere": (status("302 Found", ""), 1, "sends elsewhere (HTTP 302)"),
    "no stream": (status("200 OK", '{"choices": []}'), 1,
                  "answers with application/json, expected text/event-stream"),
}


class HostileServers(unittest.TestCase):
    def test_each_is_an_error_within_bounds(self):
        for name, (pieces, wanted, words) in HOSTILE.items():
            with self.subTest(name), Fake(pieces) as fake:
                child = subprocess.Popen([ZEROPE, "chat", "--server", fake.url, "--patience", "1"],
                                         stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE, env=environment())
                with child.stdin as stream:
                    stream.write(b"hi\n")
                err = child.stderr.read().decode()
                child.stderr.close()
                _, code, used = os.wait4(child.pid, 0)
                child.returncode = os.waitstatus_to_exitcode(code)
                self.assertEqual(child.returncode, wanted, err)
                self.assertIn(words, err)
                self.assertLess(used.ru_maxrss, MOST_MEMORY)
                self.assertEqual([c for c in err if c < " " and c != "\n"], [])

    def test_what_is_sent(self):
        with Fake(lambda: [HEAD, chunk("yes", finish_reason="stop"), DONE]) as fake:
            code, out, _ = chat(fake.url + "/llm/", "hi\nho\n", "a-model", "--api-key", KEY,
                                "--system", "be", "--temp", 0.5, "--stop", "a", "--stop", "b",
                                "-q")
            self.assertEqual((code, out), (0, "yes\nyes\n"))
            first, second = fake.requests
            self.assertIn("POST /llm/v1/chat/completions HTTP/1.1\r\n", fake.heads[0])
            self.assertIn(f"Authorization: Bearer {KEY}\r\n", fake.heads[0])
            messages = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
            self.assertEqual(first, {"model": "a-model", "temperature": 0.5, "stop": ["a", "b"],
                                     "messages": messages, "stream": True,
                                     "stream_options": {"include_usage": True}})
            self.assertEqual(second["messages"][2:], [{"role": "assistant", "content": "yes"},
                                                      {"role": "user", "content": "ho"}])

    def test_options_that_make_no_sense(self):
        for options in (["--ctx-size", 100], ["--offline"], ["--api-key", ""], ["-n", 0],
                        ["--api-key", "a", "--api-key-file", "b"]):
            self.assertEqual(chat("http://127.0.0.1:9", "hi\n", *options)[0], 2, options)
        here = subprocess.run([ZEROPE, "chat", running.SMALL, "--ca-file", "x"], text=True,
                              capture_output=True, env=environment(), check=False)
        self.assertEqual((here.returncode, "--ca-file is for --server" in here.stderr), (2, True))
        for url in ("127.0.0.1:9", "ftp://h", "http://u:p@h", ""):
            self.assertEqual(chat(url, "hi\n")[0], 2, url)


class Terminal:
    """zerope chat with a terminal for all its streams."""

    def __init__(self, *arguments):
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(ZEROPE, [ZEROPE, "chat", *arguments], environment(TERM="dumb"))

    def wait_for(self, words):
        """Reads until the words are there; drops what was read with them."""
        end = time.monotonic() + running.PATIENCE
        while words not in self.seen:
            if time.monotonic() > end:
                raise RuntimeError(f"no {words!r} in {self.seen!r}")
            self.seen += os.read(self.fd, 4096).decode(errors="replace")
        before, _, self.seen = self.seen.partition(words)
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        with contextlib.suppress(OSError):
            while os.read(self.fd, 4096):
                pass
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return code


class Interrupts(unittest.TestCase):
    def test_at_a_terminal_it_ends_the_answer_alone(self):
        with Fake(slowly(HEAD, chunk("word "))) as fake:
            terminal = Terminal("--server", fake.url)
            for i in (1, 2):
                terminal.wait_for("> ")
                terminal.type("hi\n")
                terminal.wait_for("word word ")
                terminal.type("\x03")
                terminal.wait_for("note: stopped")
                self.assertTrue(fake.cut.wait(running.PATIENCE))
                fake.cut.clear()
                self.assertEqual(len(fake.requests), i)
            self.assertEqual([m["role"] for m in fake.requests[1]["messages"]],
                             ["user", "assistant", "user"])
            self.assertTrue(fake.requests[1]["messages"][1]["content"].startswith("word word "))
            terminal.wait_for("> ")
            terminal.type("/exit\n")
            self.assertEqual(terminal.end(), 0)

    def test_before_an_answer_the_question_is_forgotten(self):
        with Fake(slowly(HEAD, b":\n\n")) as fake:
            terminal = Terminal("--server", fake.url)
            for _ in range(2):
                terminal.wait_for("> ")
                terminal.type("hi\n")
                while not fake.requests:
                    time.sleep(0.01)
                terminal.type("\x03")
                terminal.wait_for("note: stopped")
                self.assertEqual(len(fake.requests.pop()["messages"]), 1)
            terminal.wait_for("> ")
            terminal.type("\x03")  # nothing is under way
            self.assertEqual(terminal.end(), 130)

    def test_a_script_ends(self):
        with Fake(slowly(HEAD, chunk("word "))) as fake:
            child = subprocess.Popen([ZEROPE, "chat", "--server", fake.url, "--json"],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, env=environment())
            child.stdin.write(b"hi\nho\n")
            child.stdin.flush()
            while not fake.requests:
                time.sleep(0.01)
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=running.PATIENCE)
            self.assertEqual(child.returncode, 130, err)
            self.assertEqual(json.loads(out)["messages"][0]["content"], "hi")
            self.assertEqual(len(fake.requests), 1)

    def test_what_a_server_sends_does_not_act_on_a_terminal(self):
        text = "a\x1b[2Jb\x9b1mc\x07d\x7fe\rf\tg"
        with Fake(lambda: [HEAD, chunk(text), DONE]) as fake:
            terminal = Terminal("--server", fake.url, "-q")
            terminal.wait_for("> ")
            terminal.type("hi\n")
            self.assertIn("a?[2Jb?1mc?d?e?f\tg\r\n", terminal.wait_for("> "))
            terminal.type("/exit\n")
            self.assertEqual(terminal.end(), 0)
            _, out, _ = chat(fake.url, "hi\n", "-q")
            self.assertEqual(out.encode(), text.encode() + b"\n")  # files get the bytes


if __name__ == "__main__":
    unittest.main()
