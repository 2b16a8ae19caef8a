#!/usr/bin/env python3
"""batch_share: what is left through the server of `zerope bench --batch` at the same batch.

Usage: batch_share.py ZEROPE MODEL [--batch N] [--depth N] [--tokens N] [--pairs N] [--threads N]
BATCH streams begin with DEPTH tokens each; tokens drawn (/admin/status) between the time when all
have begun and the time before the first ends, against bench at the depth they have by then. In
turns; the share is the median of the pairs.
"""
import argparse
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import time
from statistics import median

import load

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/serve"))
import running  # noqa: E402  pylint: disable=wrong-import-position


async def drain(place, body):
    """Reads a stream to its end and looks at nothing."""
    reader, writer = await asyncio.open_connection(*place)
    text = json.dumps(body).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(text) + text)
    while await reader.read(1 << 16):
        pass
    writer.close()


async def status(place):
    reader, writer = await asyncio.open_connection(*place)
    writer.write(b"GET /admin/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    text = await reader.read(-1)
    writer.close()
    return json.loads(text.partition(b"\r\n\r\n")[2])["scheduler"]


async def streams(place, ids, args):
    """(tokens, seconds, mean depth) while all of them draw."""
    before, seen = await status(place), []
    tasks = [asyncio.create_task(drain(place, {
        "prompt": [(t + i) % 1000 + 100 for t in ids], "max_tokens": args.tokens, "temperature": 0,
        "stream": True, "ignore_eos": True, "cache_prompt": False})) for i in range(args.batch)]
    while not any(t.done() for t in tasks):
        now = await status(place)
        drawn = now["drawn_tokens"] - before["drawn_tokens"]
        if now["prompt_tokens"] - before["prompt_tokens"] >= args.batch * args.depth:
            seen.append((time.monotonic(), drawn))
        await asyncio.sleep(0.05)
    await asyncio.gather(*tasks)
    (t0, n0), (t1, n1) = seen[0], seen[-1]  # no task was done by then
    return n1 - n0, t1 - t0, args.depth + (n0 + n1) / 2 / args.batch


def bench(args, depth):
    command = [args.zerope, "bench", args.model, "-p", 0, "-n", args.tokens, "-d",
               max(1, round(depth - args.tokens / 2)), "--batch", args.batch, "--separate", "-r", 1,
               "-t", args.threads, "--json", "--quiet"]
    done = subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["rows"][-1]["tps_median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("zerope")
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=7)
    for name, value in (("batch", 16), ("depth", 256), ("tokens", 256),
                        ("threads", os.cpu_count())):
        parser.add_argument("--" + name, type=int, default=value)
    args = parser.parse_args()
    ids, rows = [7 * i for i in range(args.depth)], []
    with running.Server(args.zerope, args.model, "-c", args.depth + args.tokens + 64, "-np",
                        args.batch, "-t", args.threads, "--admin-open", template=None) as server:
        for _ in range(args.pairs):
            tokens, seconds, depth = asyncio.run(streams(load.place_of(server.url), ids, args))
            alone = bench(args, depth)
            rows.append({"served": tokens / seconds, "bench": alone, "depth": depth,
                         "share": tokens / seconds / alone, "load": os.getloadavg()[0]})
    share = median(r["share"] for r in rows)
    print(json.dumps({"share": share, "batch": args.batch, "rows": rows}))


if __name__ == "__main__":
    main()
