#!/usr/bin/env python3
"""abuse: what hostile clients send over real sockets, and what the server makes of it.

Usage: abuse.py ZEROPE [--connections N] [--asks N] [CASE...]      all cases, or only those named
Prints one JSON document. Exit code 1 if a case does not hold; times and memory are told, not judged.
"""
import argparse
import json
import math
import pathlib
import random
import re
import resource
import socket
import statistics
import sys
import time

import running

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
KEY = "Vq3-the-right-key-of-ann-0001"


class Raw:
    """A socket and the statuses that come back over it."""

    def __init__(self, server, timeout=running.PATIENCE):
        self.s = socket.create_connection(("127.0.0.1", server.port), timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()

    def say(self, data):
        """False: it was closed while we spoke."""
        try:
            self.s.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def rest(self, until=None):
        """All that comes until the end, or until this."""
        text = b""
        while until is None or until not in text:
            try:
                piece = self.s.recv(1 << 16)
            except ConnectionResetError:
                break
            if not piece:
                break
            text += piece
        return text


def statuses(text):
    return [int(s) for s in re.findall(rb"(?:^|\n|\})HTTP/1\.1 (\d{3}) ", text)]


def alive(server):
    """It still answers."""
    return len(server.post(TEXT, {"prompt": "a", "max_tokens": 1})["choices"]) == 1


# ---- smuggling -------------------------------------------------------------------------------

def unescaped(line):
    plain = {b"r": b"\r", b"n": b"\n", b"t": b"\t", b"\\": b"\\"}
    return re.sub(rb"\\(x[0-9a-fA-F]{2}|.)", lambda m: plain.get(m[1]) or
                  bytes.fromhex(m[1][1:].decode()), line)


def corpus():
    """(name, statuses, whether it stays open, bytes) of tests/serve/smuggling (see smuggling.h)."""
    for path in sorted((running.ROOT / "tests/serve/smuggling").glob("*.txt")):
        name, expected, data = "", [], b""
        for line in path.read_bytes().split(b"\n") + [b"== "]:
            if line.startswith(b"== "):
                if name:
                    yield name, [int(w) for w in expected if w.isdigit()], b"open" in expected, data
                name, data = f"{path.stem}: {line[3:].decode()}", b""
            elif line.startswith(b"-> "):
                expected = line[3:].split()
            else:
                data += unescaped(line)


def is_as(got, expected):
    """So many answers, and each fault of the protocol where it belongs; the status of a sound
    request is its path's own affair."""
    own = (200, 204, 400, 404, 405, 411)
    return len(got) == len(expected) and all(
        g in own if e in (200, 204, 404, 405) else g == e for g, e in zip(got, expected))


def case_smuggling(zerope, _):
    """The corpus of smuggling, with paths of this server in place of the corpus's /echo."""
    wrong, n = [], 0
    with running.Server(zerope, running.SMALL, "-c", 512) as server:
        for name, expected, stays, data in corpus():
            if 413 in expected:
                continue  # the limit of another server: case_oversized
            n += 1
            data = data.replace(b"POST /echo", b"POST /tokenize").replace(b"GET /echo",
                                                                          b"GET /healthz")
            with Raw(server) as raw:
                raw.say(data)
                if stays:
                    raw.say(b"GET /last HTTP/1.1\r\nHost: a\r\nX-Request-Id: last\r\n\r\n")
                got = statuses(raw.rest(b"x-request-id: last" if stays else None))
            if not is_as(got, expected + [404] * stays):
                wrong.append(f"{name}: {got}, expected {expected + [404] * stays}")
        holds = alive(server) and server.stop() == 0
    return {"cases": n, "wrong": wrong, "holds": holds and not wrong}


# ---- bodies ----------------------------------------------------------------------------------

def bombs():
    """(name, path, body, statuses that are right)."""
    bad, ok = (400,), (200, 400)
    message = '{"messages": [{"role": "user", "content": %s}], "max_tokens": 1%s}'
    yield "arrays 1e6 deep", CHAT, "[" * 10**6, bad
    yield "arrays 1e6 deep in a field", CHAT, message % ("[" * 10**6, ""), bad
    yield "objects 1e5 deep", CHAT, '{"a":' * 10**5 + "1" + "}" * 10**5, bad
    yield "3e6 values", CHAT, message % (
        '"x"', ', "metadata": {"a": [%s1]}' % ("1," * 3 * 10**6)), bad
    yield "1e5 fields of one name", CHAT, message % ('"x"', ', "seed": 1' * 10**5), bad
    yield "a number of 1e6 digits", TEXT, '{"prompt": "x", "seed": %s}' % ("9" * 10**6), bad
    yield "1e999999", TEXT, '{"prompt": "x", "temperature": 1e999999}', bad
    yield "a text of 30 MB", TEXT, '{"prompt": "%s"}' % ("a" * 30 * 10**6), bad
    yield "a text of 5e6 escapes", TEXT, '{"prompt": "%s"}' % (r"\u0041" * 5 * 10**6), bad
    yield "half of a surrogate", TEXT, r'{"prompt": "\ud800", "max_tokens": 1}', bad
    yield "bytes that are no text", TEXT, b'{"prompt": "\xff\xfe", "max_tokens": 1}', bad
    yield "NUL in a name", TEXT, r'{"prompt": "x", "a\u0000b": 1}', bad
    yield "nothing", TEXT, "", bad
    yield "blanks alone", TEXT, " " * 10**6, bad
    yield "a value behind it", TEXT, '{"prompt": "x"} {}', bad
    yield "a bias of 1e5 tokens", TEXT, json.dumps(
        {"prompt": "x", "logit_bias": {str(i): 1 for i in range(10**5)}}), bad
    yield "1e5 stop strings", TEXT, json.dumps({"prompt": "x", "stop": ["a"] * 10**5}), bad
    yield "1e6 prompts", TEXT, json.dumps({"prompt": ["a"] * 10**6}), bad
    yield "1e5 messages", CHAT, json.dumps({"messages": [{"role": "user", "content": "x"}] * 10**5,
                                            "max_tokens": 1}), bad
    schema = {"type": "integer"}
    for _ in range(60):
        schema = {"type": "object", "properties": {"a": schema}}
    yield "a schema 60 deep", CHAT, json.dumps({
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "response_format": {
            "type": "json_schema", "json_schema": {"name": "s", "schema": schema}}}), ok
    yield "a schema that is its own part", CHAT, json.dumps({
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "response_format": {
            "type": "json_schema", "json_schema": {"name": "s", "schema": {"$ref": "#"}}}}), ok
    yield "a grammar that doubles 60 times", TEXT, json.dumps({
        "prompt": "x", "max_tokens": 1, "grammar": "root ::= a0\n" + "".join(
            f"a{i} ::= a{i + 1} a{i + 1}\n" for i in range(60)) + 'a60 ::= "x"'}), ok
    yield "a grammar without an end", TEXT, json.dumps({
        "prompt": "x", "max_tokens": 1, "grammar": "root ::= root"}), ok
    yield "a grammar of 1e9 repetitions", TEXT, json.dumps({
        "prompt": "x", "max_tokens": 1,
        "grammar": 'root ::= ("a"{1,1000000000}){1,1000000000}'}), ok
    yield "a pattern that explodes", CHAT, json.dumps({
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "response_format": {
            "type": "json_schema", "json_schema": {"name": "s", "schema": {
                "type": "string", "pattern": "^((((a{0,99}){0,99}){0,99}){0,99})$"}}}}), ok


def case_bombs(zerope, _):
    """JSON, schemas and grammars made to exhaust: refused, or harmless."""
    found, wrong = {}, []
    with running.Server(zerope, running.SMALL, "-c", 512) as server:
        before = running.resident_bytes(server.process.pid)
        for name, path, text, right in bombs():
            begun = time.monotonic()
            answer = server.ask("POST", path, text)
            found[name] = {"status": answer.status, "seconds": round(time.monotonic() - begun, 4)}
            if answer.status not in right or not json.loads(answer.body):
                wrong.append(f"{name}: {answer.status} {answer.body[:200]}")
        grown = running.resident_bytes(server.process.pid) - before
        holds = alive(server) and server.stop() == 0
    return {"bombs": found, "slowest_seconds": max(f["seconds"] for f in found.values()),
            "grown_mib": grown / (1 << 20), "wrong": wrong, "holds": holds and not wrong}


# ---- too large, too slow ---------------------------------------------------------------------

def case_oversized(zerope, _):
    """Heads, targets and bodies beyond the limits."""
    asked = {
        "header of 40 KB": (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40000 + b"\r\n\r\n", 431),
        "200 headers": (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        "target of 9 KB": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        "body told as 1 GB": (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
                              b"Content-Length: 1000000000\r\n\r\n", 413),
        "chunks beyond 32 MiB": (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
                                 b"chunked\r\n\r\n" + (b"100000\r\n" + b" " * (1 << 20) + b"\r\n") *
                                 40, 413),
        "a chunk told as 2^64": (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
                                 b"chunked\r\n\r\nfffffffffffffffff\r\n", 400)}
    found, holds = {}, True
    with running.Server(zerope, running.SMALL, "-c", 512) as server:
        for name, (data, right) in asked.items():
            with Raw(server) as raw:
                raw.say(data)
                found[name] = statuses(raw.rest())
            holds = holds and found[name] == [right]
        holds = alive(server) and server.stop() == 0 and holds
    return {"statuses": found, "holds": holds}


def case_slow(zerope, _):
    """100 clients that send a byte of a head a second: cut with 408, others are served meanwhile."""
    with running.Server(zerope, running.SMALL, "-c", 512) as server:
        drips, begun = [Raw(server) for _ in range(100)], time.monotonic()
        left, texts, served = set(range(100)), {}, 0
        spoken = b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 99
        for at in range(60):
            for i in list(left):
                if not drips[i].say(spoken[at:at + 1]):
                    left.discard(i)
            served += alive(server)
            for i in list(left):
                drips[i].s.settimeout(0.001)
                try:
                    texts[i] = drips[i].s.recv(4096)
                    left.discard(i)
                except OSError:
                    pass
            if not left:
                break
            time.sleep(1)
        seconds = time.monotonic() - begun
        for d in drips:
            d.s.close()
        told = [statuses(t) for t in texts.values()]
        assert server.stop() == 0
    return {"cut": 100 - len(left), "told_408": sum(t == [408] for t in told), "seconds": seconds,
            "served_meanwhile": served, "holds": not left and all(t == [408] for t in told) and
            len(told) == 100}


def case_idle(zerope, args):
    """Idle connections: others are answered; one beyond the limit gets a 503."""
    n = args.connections
    need = n + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < need:
        raise RuntimeError(f"{n} connections need {need} descriptors, the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, need), hard))
    with running.Server(zerope, running.SMALL, "-c", 512, "--max-connections", n + 2) as server:
        before, begun = running.resident_bytes(server.process.pid), time.monotonic()
        idle = [Raw(server) for _ in range(n)]
        for raw in idle:  # one that has asked may be idle for 75 s
            raw.say(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert all(statuses(raw.s.recv(4096)) == [200] for raw in idle)
        opened = time.monotonic() - begun
        n_open = server.counted("zerope_http_open_connections")
        times = []
        for _ in range(20):
            at = time.monotonic()
            answers = alive(server)
            times.append(time.monotonic() - at)
        more = [Raw(server) for _ in range(2)]
        with Raw(server) as beyond:
            refused = statuses(beyond.rest())
        grown = running.resident_bytes(server.process.pid) - before
        for raw in idle + more:
            raw.s.close()
        server.wait_until(lambda: server.counted("zerope_http_open_connections") < 10, "ends")
        holds = answers and refused == [503] and alive(server) and server.stop() == 0
    return {"connections": n, "seconds_to_open": opened, "bytes_a_connection": grown / n,
            "median_ms_meanwhile": 1000 * statistics.median(times), "beyond": refused,
            "holds": holds and n_open == n + 1}


# ---- keys ------------------------------------------------------------------------------------

def case_keys(zerope, args):
    """Wrong keys: 401, never logged, and no time that tells how much of one was right."""
    wrong = {"other from the first letter": "x" * len(KEY), "all right but the last": KEY[:-1] + "x",
             "the right one cut": KEY[:-1], "the right one and more": KEY + "x", "empty": "",
             "8 KB": "k" * 8000}
    times, rng, found = {name: [] for name in wrong}, random.Random(1), {}
    with running.Server(zerope, running.SMALL, "-c", 512, keys=f"ann {KEY}\n") as server:
        for name, key in wrong.items():
            found[name] = server.ask("GET", "/v1/models",
                                     headers={"authorization": f"Bearer {key}"}).status
        found["basic"] = server.ask("GET", "/v1/models", headers={
            "authorization": f"Basic {KEY}"}).status
        found["none"] = server.ask("GET", "/v1/models").status
        right = server.ask("GET", "/v1/models", headers={"x-api-key": KEY}).status
        timed = ("other from the first letter", "all right but the last")
        with Raw(server) as raw:
            for _ in range(args.asks):
                for name in rng.sample(timed, 2):
                    at = time.perf_counter()
                    raw.say(b"GET /v1/models HTTP/1.1\r\nHost: a\r\nx-api-key: %s\r\n\r\n" %
                            wrong[name].encode())
                    text = raw.rest(b"}}")
                    times[name].append(time.perf_counter() - at)
                    assert statuses(text) == [401], text
        log = server.log_path.read_text(encoding="utf-8")
        leaked = [name for name, key in wrong.items() if len(key) > 8 and key[:24] in log]
        assert server.stop() == 0
    a, b = ([1e6 * t for t in times[name]] for name in timed)
    # medians, and how far one may be off by chance: 1.25 s / sqrt n of the middle half's spread
    spread = statistics.quantiles(a + b, n=4)
    noise = 1.2533 * (spread[2] - spread[0]) / 1.349 * math.sqrt(2 / len(a))
    return {"statuses": found, "asks": len(a), "median_us": [statistics.median(x) for x in (a, b)],
            "difference_us": abs(statistics.median(a) - statistics.median(b)), "noise_us": noise,
            "leaked": leaked,
            "holds": set(found.values()) == {401} and right == 200 and not leaked}


def main():
    cases = {name[5:]: run for name, run in globals().items() if name.startswith("case_")}
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("zerope", type=pathlib.Path)
    parser.add_argument("--connections", type=int, default=10000)
    parser.add_argument("--asks", type=int, default=2000)
    parser.add_argument("cases", nargs="*", choices=[*cases, []])
    args = parser.parse_intermixed_args()
    found = {name: cases[name](args.zerope, args) for name in args.cases or cases}
    print(json.dumps({"cases": found}))
    return 0 if all(f["holds"] for f in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
