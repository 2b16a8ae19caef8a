#!/usr/bin/env python3
"""load: clients of a chat server that ask, read and ask again, in one process.

Usage: load.py URL --mix MIX [--clients N] [--seconds S] [--seed N] [--leave X] [--plain X]
MIX: A long documents, two questions about each; B dialogues of four turns; C 70 % A, 20 % B, 10 %
short questions; clients: the same with shorter texts, for many clients at a time.
LEAVE: share of streams that are left after some tokens. PLAIN: share of answers asked for whole.
The work is the same for each server that is asked with the same seed: answers go on for as many
tokens as asked for (ignore_eos). Nothing new is asked after S seconds; what is under way is read to
its end. Prints one JSON document.
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import statistics
import time
import urllib.parse

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "zerope"
PATIENCE = 900  # seconds for an answer; beyond it counts as failed
# words of a document, of a turn, of a short question; tokens of their answers
SIZES = {"long": (600, 2000, 48), "turn": (15, 60, 48), "short": (5, 30, 24)}
SMALL = {"long": (100, 400, 32), "turn": (10, 40, 24), "short": (5, 20, 12)}
SHARES = {"A": (1, 0, 0), "B": (0, 1, 0), "C": (0.7, 0.2, 0.1), "clients": (0.7, 0.2, 0.1)}
TURNS, QUESTIONS = 4, ("What is it about?", "Name three things that it says.")


class Texts:
    """Words in the order of the corpus, so that texts read like texts."""

    def __init__(self, folder):
        files = sorted(pathlib.Path(folder).rglob("*.txt"))
        if not files:
            raise SystemExit(f"load: no texts in {folder}: scripts/setup makes them")
        self.words = " ".join(p.read_text(encoding="utf-8")[:400000] for p in files).split()

    def some(self, rng, low, high):
        n = rng.randint(low, high)
        begin = rng.randrange(len(self.words) - n)
        return " ".join(self.words[begin:begin + n])


def work(rng, texts, mix):
    """One piece of work of a client: lists of messages; None stands for the last answer."""
    sizes, kind = SMALL if mix == "clients" else SIZES, rng.choices(
        ("long", "dialogue", "short"), SHARES[mix])[0]
    if kind == "long":
        *words, n = sizes["long"]
        document = texts.some(rng, *words)
        return kind, n, [[{"role": "user", "content": f"{document}\n\n{q}"}] for q in QUESTIONS]
    if kind == "short":
        *words, n = sizes["short"]
        return kind, n, [[{"role": "user", "content": texts.some(rng, *words) + "?"}]]
    *words, n = sizes["turn"]
    turns, said = [], [{"role": "system", "content": "You answer in one sentence."}]
    for _ in range(TURNS):
        said = said + [{"role": "user", "content": texts.some(rng, *words)}]
        turns.append(said)
        said = said + [None]
    return kind, n, turns


# ---- one exchange ----------------------------------------------------------------------------

async def pieces(reader, headers):
    """The body as it comes."""
    if headers.get("transfer-encoding") != "chunked":
        size = headers.get("content-length")
        if size is not None:
            yield await reader.readexactly(int(size))
            return
        while piece := await reader.read(1 << 16):
            yield piece
        return
    while size := int((await reader.readline()).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


async def data_of(reader, headers):
    """The data of a stream's events."""
    rest = b""
    async for piece in pieces(reader, headers):
        *blocks, rest = (rest + piece).split(b"\n\n")
        for block in blocks:
            for line in block.split(b"\n"):
                if line.startswith(b"data: "):
                    yield line[6:]


class Exchange:
    """What became of a request: completed, left, refused or failed, and when its tokens came."""

    def __init__(self, name, kind, leave_after):
        self.id, self.kind, self.leave_after = name, kind, leave_after
        self.outcome, self.why, self.text, self.usage = "failed", "", "", {}
        self.begun, self.first, self.ended, self.gaps = time.monotonic(), None, None, []

    def token(self):
        now = time.monotonic()
        if self.first is None:
            self.first = now
        else:
            self.gaps.append(now - self.ended)
        self.ended = now

    def take(self, event):
        """True once the client has had enough."""
        if "error" in event:
            raise RuntimeError(f"in a stream: {event['error']}")
        self.usage = event.get("usage") or self.usage
        for choice in event["choices"]:
            if choice["delta"].get("content"):
                self.text += choice["delta"]["content"]
                self.token()
        return self.leave_after is not None and len(self.gaps) >= self.leave_after

    async def read(self, reader, headers, stream):
        if not stream:
            body = json.loads(b"".join([p async for p in pieces(reader, headers)]))
            self.text, self.usage = body["choices"][0]["message"]["content"], body["usage"]
            return "completed"
        async for data in data_of(reader, headers):
            if data == b"[DONE]":
                return "completed"
            if self.take(json.loads(data)):
                return "left"
        raise RuntimeError("a stream without its end")

    async def ask(self, place, body):
        reader, writer = await asyncio.open_connection(*place, limit=1 << 20)
        try:
            text = json.dumps(body).encode()
            writer.write(f"POST /v1/chat/completions HTTP/1.1\r\nHost: {place[0]}\r\nConnection: "
                         f"close\r\nContent-Type: application/json\r\nx-request-id: {self.id}\r\n"
                         f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
            status = int((await reader.readline()).split()[1])
            headers = {}
            while line := (await reader.readline()).strip():
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip().lower()
            if status != 200:
                self.why = f"{status} {b''.join([p async for p in pieces(reader, headers)])[:300]}"
                return "refused" if status in (429, 503) else "failed"
            return await self.read(reader, headers, body["stream"])
        finally:
            writer.close()

    async def run(self, place, body):
        try:
            self.outcome = await asyncio.wait_for(self.ask(place, body), PATIENCE)
        except (OSError, RuntimeError, ValueError, IndexError, KeyError, asyncio.TimeoutError,
                asyncio.IncompleteReadError) as error:
            self.why = f"{type(error).__name__}: {error}"
        self.ended = time.monotonic()


# ---- clients ---------------------------------------------------------------------------------

class Load:
    def __init__(self, place, args):
        self.place, self.args, self.done = place, args, []
        self.texts, self.begun = Texts(args.texts), time.monotonic()
        self.end = self.begun + args.seconds

    async def client(self, number):
        rng, n_asked = random.Random(f"{self.args.seed}-{number}"), 0
        while time.monotonic() < self.end:
            kind, n, turns = work(rng, self.texts, self.args.mix)
            answers = []
            for turn in turns:
                known = iter(answers)
                messages = [m or {"role": "assistant", "content": next(known)} for m in turn]
                stream = rng.random() >= self.args.plain
                leaves = stream and rng.random() < self.args.leave
                exchange = Exchange(f"load-{self.args.seed}-{number}-{n_asked}", kind,
                                    rng.randint(1, 5) if leaves else None)
                n_asked += 1
                body = {"messages": messages, "max_tokens": n, "temperature": 0.7, "seed": n_asked,
                        "ignore_eos": True, "stream": stream}
                if stream:
                    body["stream_options"] = {"include_usage": True}
                await exchange.run(self.place, body)
                self.done.append(exchange)
                # random weights say U+0000, which no prompt may have
                answers.append(exchange.text.replace("\0", "") or "-")
                if exchange.outcome == "refused":
                    await asyncio.sleep(1)
                if time.monotonic() >= self.end:
                    return

    async def run(self):
        await asyncio.gather(*(self.client(i) for i in range(self.args.clients)))


def percentiles(values):
    if len(values) < 2:
        return {"n": len(values)}
    cut = statistics.quantiles(values, n=100, method="inclusive")
    return {"n": len(values), **{f"p{p}": round(cut[p - 1], 5) for p in (50, 90, 95, 99)},
            "max": round(max(values), 5)}


def summary(load, args):
    done, now = load.done, time.monotonic()
    counts = {o: sum(e.outcome == o for e in done)
              for o in ("completed", "left", "refused", "failed")}
    admitted = len(done) - counts["refused"]
    tokens = {name: sum(e.usage.get(name, 0) for e in done if e.outcome == "completed")
              for name in ("prompt_tokens", "completion_tokens")}
    return {
        "mix": args.mix, "clients": args.clients, "seconds": now - load.begun, "seed": args.seed,
        "asked": len(done), **counts,
        "success_of_admitted": (counts["completed"] + counts["left"]) / admitted if admitted else 0,
        "success_of_offered": (counts["completed"] + counts["left"]) / len(done) if done else 0,
        **tokens, "tokens_per_second": sum(tokens.values()) / (now - load.begun),
        "generated_per_second": tokens["completion_tokens"] / (now - load.begun),
        "first_token_seconds": percentiles([e.first - e.begun for e in done if e.first]),
        "inter_token_seconds": percentiles([g for e in done for g in e.gaps]),
        "request_seconds": {kind: percentiles([e.ended - e.begun for e in done if e.kind == kind and
                                               e.outcome == "completed"])
                            for kind in sorted({e.kind for e in done})},
        "why": sorted({e.why for e in done if e.outcome == "failed"})[:5]}


def place_of(url):
    parts = urllib.parse.urlsplit(url)
    return parts.hostname, parts.port


def measure(url, args):
    """The summary, and the outcome of each request by its id."""
    load = Load(place_of(url), args)
    asyncio.run(load.run())
    return summary(load, args), {e.id: e.outcome for e in load.done}


def parser_of_load():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--mix", choices=SHARES, default="C")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--leave", type=float, default=0)
    parser.add_argument("--plain", type=float, default=0)
    parser.add_argument("--texts", default=CACHE / "corpus")
    return parser


def main():
    parser = argparse.ArgumentParser(parents=[parser_of_load()],
                                     description=__doc__.split("\n", 1)[0])
    parser.add_argument("url")
    args = parser.parse_args()
    print(json.dumps(measure(args.url, args)[0]))


if __name__ == "__main__":
    main()
