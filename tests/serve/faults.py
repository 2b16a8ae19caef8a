#!/usr/bin/env python3
"""faults: what goes wrong around a server, and what it makes of it; figures of each case.

Usage: faults.py ZEROPE [--model FILE] [CASE...]      all cases, or only those named
Prints one JSON document. Exit code 1 if a case does not hold; times and
memory are told, not judged. FILE (a
GGUF file, default: a small one) is what `restart` and `base64` serve.
"""
import argparse
import asyncio
import base64
import http.client
import json
import pathlib
import random
import signal
import socket
import sys
import tempfile
import threading
import time

import bad_files
import running

LONG = 60000  # tokens: takes longer than anything here waits
TEXT = "/v1/completions"
SMALL_FILE = running.ROOT / "tests/data/arch/gguf/gguf-llama-closed.gguf"


def body(**more):
    return {"prompt": "Once upon", "max_tokens": 8, "seed": 1, "ignore_eos": True, **more}


def begin(server, fields, receive_buffer=None):
    """A socket over which a request was sent."""
    s = socket.socket()
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    s.settimeout(running.PATIENCE)
    s.connect(("127.0.0.1", server.port))
    text = json.dumps(fields).encode()
    s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (
        TEXT.encode(), len(text)) + text)
    return s


def scheduler(server):
    return server.get("/admin/status")["scheduler"]


# ---- a client that is gone -------------------------------------------------------------------

def stops(server, s, counter):
    """Closes; steps that were still made once the server knew."""
    before = scheduler(server)[counter]
    s.close()
    known = scheduler(server)["steps"]  # asked for behind the close, on the same loop
    end = server.wait_until(lambda: (lambda now: now[counter] == before + 1 and now["running"] == 0
                                     and now)(scheduler(server)), "end of the request")
    time.sleep(0.05)
    later = scheduler(server)
    return {"steps_after": later["steps"] - known, "running": later["running"],
            "holds": later["steps"] - known <= 1 and later["steps"] == end["steps"]}


def case_gone(zerope, _):
    """Clients that leave in each phase: no step but the one under way is made for them."""
    found = {}
    with running.Server(zerope, running.SMALL, "-c", LONG + 1000, "-np", 2, "--admin-open",
                        "--kv-tokens", 2 * LONG) as server:
        # while its body is read
        s = socket.create_connection(("127.0.0.1", server.port))
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{")
        s.close()
        server.wait_until(lambda: any(r["status"] == 499 for r in server.records("http")), "499")
        found["reading"] = {"accepted": scheduler(server)["accepted"],
                            "holds": scheduler(server)["accepted"] == 0}
        # while its prompt is computed
        s = begin(server, body(prompt=[5] * (LONG - 100)))
        server.wait_until(lambda: scheduler(server)["prompt_tokens"] > 0, "prompt")
        found["prefill"] = stops(server, s, "cancelled_prompt")
        found["prefill"]["prompt_tokens"] = scheduler(server)["prompt_tokens"]
        found["prefill"]["holds"] &= found["prefill"]["prompt_tokens"] < LONG - 100
        for name, stream in (("stream", True), ("decode", False)):
            drawn = scheduler(server)["drawn_tokens"]
            s = begin(server, body(max_tokens=LONG, stream=stream))
            server.wait_until(lambda d=drawn: scheduler(server)["drawn_tokens"] > d + 10, "tokens")
            found[name] = stops(server, s, "cancelled_drawing")
        # while it waits: two others have all there is
        others = [begin(server, body(max_tokens=LONG)) for _ in range(2)]
        server.wait_until(lambda: scheduler(server)["running"] == 2, "two requests")
        s = begin(server, body())
        server.wait_until(lambda: scheduler(server)["waiting"] == 1, "queue")
        s.close()
        server.wait_until(lambda: scheduler(server)["cancelled_queued"] == 1, "end of the request")
        now = scheduler(server)
        found["queue"] = {"holds": now["waiting"] == 0 and now["running"] == 2}
        for s in others:
            s.close()
        server.wait_until(lambda: scheduler(server)["running"] == 0, "rest")
        assert server.stop() == 0
    return {"phases": found, "holds": all(f["holds"] for f in found.values())}


def case_slow_reader(zerope, _):
    """A client that takes nothing is cut; its neighbour has all it asked for."""
    with running.Server(zerope, running.SMALL, "-c", LONG + 1000, "-np", 4, "--admin-open",
                        "--kv-tokens", 2 * LONG) as server:
        alone = server.post(TEXT, body(max_tokens=500))
        before = running.resident_bytes(server.process.pid)
        slow = begin(server, body(max_tokens=LONG, stream=True, logprobs=20), 4096)
        neighbour = server.post(TEXT, body(max_tokens=500))
        server.wait_until(lambda: server.counted("zerope_http_slow_clients_total") == 1, "cut")
        server.wait_until(lambda: scheduler(server)["running"] == 0, "end of the request")
        grown = running.resident_bytes(server.process.pid) - before
        slow.close()
        assert server.stop() == 0
    same = neighbour["choices"][0]["text"] == alone["choices"][0]["text"]
    return {"grown_mib": grown / (1 << 20), "neighbour_same": same, "holds": same}


# ---- the way between -------------------------------------------------------------------------

class Jitter:
    """A proxy on a loop of its own that delays each piece, in order, by 100 ms and up to 20."""

    def __init__(self, port, seed):
        self.target, self.rng = port, random.Random(seed)
        self.loop, self.ready = asyncio.new_event_loop(), threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        self.ready.wait()

    def run(self):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        self.loop.run_forever()
        server.close()
        left = asyncio.all_tasks(self.loop)
        self.loop.run_until_complete(asyncio.wait(left, timeout=10) if left else asyncio.sleep(0))
        self.loop.close()

    async def carry(self, reader, writer):
        due, pieces = 0, asyncio.Queue()

        async def send():
            while (item := await pieces.get())[1]:
                await asyncio.sleep(max(0, item[0] - self.loop.time()))
                writer.write(item[1])
            writer.close()
        sender = asyncio.ensure_future(send())
        while True:
            piece = await reader.read(1 << 16)
            due = max(due, self.loop.time() + 0.1 + self.rng.random() * 0.02)
            pieces.put_nowait((due, piece))
            if not piece:
                break
        await sender

    async def serve(self, reader, writer):
        there = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(self.carry(reader, there[1]), self.carry(there[0], writer))

    def end(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


def case_jitter(zerope, _):
    """Streams over a way with 100 ms + 20 ms of jitter: the same answers."""
    with running.Server(zerope, running.SMALL, "-c", 4096) as server:
        asked = [body(max_tokens=40, seed=i, temperature=2, stream=True) for i in range(16)]
        want = [text_of(server.ask("POST", TEXT, b).body) for b in asked]
        proxy, got, times = Jitter(server.port, 1), [None] * len(asked), []

        def one(i):
            c = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=running.PATIENCE)
            begun = time.monotonic()
            c.request("POST", TEXT, json.dumps(asked[i]), {"connection": "close"})
            got[i] = text_of(c.getresponse().read())
            times.append(time.monotonic() - begun)
        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(asked))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        proxy.end()
        assert server.stop() == 0
    return {"streams": len(got), "seconds": max(times), "holds": got == want}


def text_of(stream):
    """The text of a stream that came to its end."""
    found = running.events(stream)
    assert found[-1] == (None, "[DONE]"), found[-1:]
    return "".join(json.loads(d)["choices"][0]["text"] for _, d in found[:-1])


# ---- disks and files -------------------------------------------------------------------------

def case_disk_full(zerope, _):
    """Log and log of decisions on a full disk: answers go on, decisions stay in memory."""
    with running.Server(zerope, running.SMALL, "-c", 512, "--admin-open", "--audit-file",
                        "/dev/full", log_file="/dev/full") as server:
        answers = [server.post(TEXT, body())["choices"][0]["text"] for _ in range(20)]
        server.post("/admin/breaker", {"action": "open", "why": "disk is full"})
        lines = server.get("/admin/audit")["lines"]
        code = server.stop()
    return {"answers": len(answers), "decisions": len(lines), "exit_code": code,
            "holds": len(set(answers)) == 1 and code == 0 and
            any("disk is full" in json.dumps(line) for line in lines)}


def case_corrupt_candidate(zerope, _):
    """A candidate's file that is cut off: refused with its reason, the baseline answers on."""
    with tempfile.TemporaryDirectory() as folder, running.Server(
            zerope, SMALL_FILE, "-c", 512, "--admin-open") as server:
        bad = bad_files.cut_off(SMALL_FILE, pathlib.Path(folder) / "bad.gguf")
        before = server.post(TEXT, body())["choices"][0]["text"]
        server.post("/admin/models", {"action": "load-candidate", "path": str(bad)})
        models = server.wait_until(lambda: (lambda m: m["load_error"] and m)(
            server.get("/admin/status")["models"]), "refusal")
        after = server.post(TEXT, body())["choices"][0]["text"]
        audit = [a["why"] for a in server.audit("model_failed")]
        assert server.stop() == 0
        with running.Server(zerope, SMALL_FILE, "-c", 512, "--candidate", bad) as other:
            other.wait_for("model_failed")
            at_start = other.post(TEXT, body())["choices"][0]["text"]
            assert other.stop() == 0
    return {"error": models["load_error"], "holds": before == after == at_start and
            models["candidate"] is None and len(audit) == 1}


def case_restart(zerope, model):
    """kill -9 with streams under way, and the next one: time until it is ready, the same answer."""
    options = ("-c", 2048, "-np", 8)
    template = None if model != SMALL_FILE else running.TEMPLATE
    with running.Server(zerope, model, *options, template=template):
        pass  # weights are packed now
    with running.Server(zerope, model, *options, template=template) as server:
        want = server.post(TEXT, body(max_tokens=24))["choices"][0]["text"]
        streams = [begin(server, body(max_tokens=2000, stream=True)) for _ in range(4)]
        for s in streams:
            s.recv(1)
        server.process.kill()
        server.process.wait()
        with running.Server(zerope, model, *options, template=template) as again:
            got = again.post(TEXT, body(max_tokens=24))["choices"][0]["text"]
            seconds = again.ready_seconds
            assert again.stop() == 0
        for s in streams:
            s.close()
    return {"ready_seconds": seconds, "holds": got == want}


# ---- ends, and prompts that are too long -----------------------------------------------------

def case_drain(zerope, _):
    """SIGTERM: streams under way are finished, nothing new is taken; what is too long is told so."""
    found = {}
    for name, n, timeout in (("finished", 3000, 300), ("cut", LONG, 1)):
        with running.Server(zerope, running.SMALL, "-c", LONG + 1000, "--kv-tokens", 3 * LONG, "-np",
                            4, "--drain-timeout", timeout) as server:
            streams = [begin(server, body(max_tokens=n, stream=True, seed=i)) for i in range(3)]
            heads = [s.recv(1) for s in streams]
            idle = http.client.HTTPConnection("127.0.0.1", server.port, timeout=running.PATIENCE)
            idle.request("GET", "/readyz")
            ready = idle.getresponse()
            ready.read()
            begun = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            server.wait_for("draining")
            refused = False
            try:
                refused = server.ask("POST", TEXT, body()).status == 503
            except OSError:
                refused = True
            texts = [h + b"".join(iter(lambda s=s: s.recv(1 << 16), b""))
                     for h, s in zip(heads, streams)]
            code = server.process.wait(running.PATIENCE)
            seconds = time.monotonic() - begun
            for s in (*streams, idle):
                s.close()
        whole = sum(b"data: [DONE]" in t for t in texts)
        told = sum(b'data: {"error"' in t for t in texts)
        found[name] = {"whole": whole, "told_of_the_end": told, "exit_code": code,
                       "seconds": seconds, "holds": refused and code == 0 and ready.status == 200 and
                       (whole, told) == ((3, 0) if name == "finished" else (0, 3))}
    return {"drains": found, "holds": all(f["holds"] for f in found.values())}


def case_base64(zerope, model):
    """100 KB of base64 as a prompt: a 400 with both numbers, idle and beside a stream."""
    text = base64.b64encode(random.Random(1).randbytes(75000)).decode()
    asked = {"messages": [{"role": "user", "content": text}]}
    found = {}
    with running.Server(zerope, model, "-c", 2048,
                        template=None if model != SMALL_FILE else running.TEMPLATE) as server:
        for name in ("idle", "busy"):
            stream = begin(server, body(max_tokens=1900, stream=True)) if name == "busy" else None
            times, answers = [], []
            for _ in range(20):
                begun = time.monotonic()
                answers.append(server.ask("POST", "/v1/chat/completions", asked))
                times.append(1000 * (time.monotonic() - begun))
            error = json.loads(answers[0].body)["error"]
            found[name] = {"most_ms": max(times), "median_ms": sorted(times)[10],
                           "said": error["message"],
                           "holds": {a.status for a in answers} == {400} and
                           error["code"] == "context_length_exceeded" and
                           error["n_prompt_tokens"] > error["n_ctx"] == 2048}
            if stream:
                stream.close()
        assert server.stop() == 0
    return {"bytes": len(text), **found, "holds": all(f["holds"] for f in found.values())}


def main():
    cases = {name[5:].replace("_", "-"): run for name, run in globals().items()
             if name.startswith("case_")}
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("zerope")
    parser.add_argument("--model", type=pathlib.Path, default=SMALL_FILE)
    parser.add_argument("cases", nargs="*", choices=[*cases, []])
    args = parser.parse_intermixed_args()
    found = {name: cases[name](args.zerope, args.model) for name in args.cases or cases}
    print(json.dumps({"cases": found}))
    return 0 if all(f["holds"] for f in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
