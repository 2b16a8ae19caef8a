#!/usr/bin/env python3
"""canary: shares of ids through a real server, and candidates that must be got rid of.

Usage: canary.py ZEROPE [--model FILE] [--ids N] [--most-off POINTS] [--cases LIST]
shares: N ids, each asked for at 1, 5, 20 and 100 %; how far each share is off, and that no id ever
comes back. Cases: nan (logits overflow), confused (layers exchanged), slow (eight times the layers,
the same answers): with half of the requests at the candidate, what happens until the breaker opens,
and after. Prints one JSON document; exit code 1 if a share is off, a request failed, more than 5 bad
ones in a row were needed, or one went to the candidate more than 1 s later.
"""
import argparse
import asyncio
import datetime
import json
import pathlib
import queue
import sys
import tempfile
import threading
import time

import bad_files
import running

STAGES, CONNECTIONS, CLIENTS = (1, 5, 20, 100), 16, 6
WARM, MOST_REQUESTS, AFTER = 130, 400, 20  # requests before, with and after a candidate
REASONS = {"nan": ("non_finite",), "confused": ("top1_std", "loops", "non_finite"),
           "slow": ("slow",)}
SMALL = running.ROOT / "tests/data/arch/gguf/gguf-llama-closed.gguf"
SERVER = ("-np", 8, "--canary-manual", "--canary-salt", "salt", "--admin-open")


def rollout(server):
    return server.get("/admin/status")["rollout"]


def set_share(server, percent):
    server.post("/admin/canary", {"action": "set", "percent": percent})


# ---- shares ----------------------------------------------------------------------------------

async def ask_ids(server, ids, found):
    """Asks for a token with each id, over one connection; notes the variant that answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = json.dumps({"prompt": [5], "max_tokens": 1}).encode()
    while ids:
        name = ids.pop()
        writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nx-request-id: {name}\r\n"
                     f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if not head.startswith("http/1.1 200"):
            raise RuntimeError(head)
        await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
        found[name] = "x-variant: candidate" in head
    writer.close()


async def ask_all(server, ids):
    found, left = {}, list(ids)
    await asyncio.gather(*(ask_ids(server, left, found) for _ in range(CONNECTIONS)))
    return found


def shares(zerope, n, most_off):
    ids, before, rows = [f"request-{i}" for i in range(n)], {}, []
    with running.Server(zerope, running.SMALL, "--candidate", running.SMALL, *SERVER) as server:
        server.wait_until(lambda: rollout(server)["canary"]["state"] == "held", "candidate")
        for percent in STAGES:
            while True:  # a busy machine may make the candidate slow: then once more
                server.post("/admin/breaker", {"action": "close"})
                set_share(server, percent)
                found = asyncio.run(ask_all(server, ids))
                if rollout(server)["breaker"]["state"] == "closed":
                    break
            share = 100 * sum(found.values()) / n
            rows.append({"percent": percent, "share": share, "off": share - percent,
                         "came_back": sum(before[i] and not found[i] for i in before)})
            before = found
    holds = all(abs(r["off"]) <= most_off and not r["came_back"] for r in rows)
    return {"ids": n, "stages": rows, "most_off": most_off}, holds


# ---- candidates that misbehave ---------------------------------------------------------------

def ask_one(server, number, results):
    stream = number % 2 == 0
    prompt = f"This is question number {number}: why does the sea look " + "so very " * (number % 9)
    answer = server.ask("POST", "/v1/completions", {
        "prompt": prompt, "max_tokens": 24, "ignore_eos": True, "stream": stream, "seed": number},
        {"x-request-id": f"case-{number}"})
    whole = answer.status == 200 and (answer.body.endswith(b"data: [DONE]\n\n") if stream else
                                      b'"finish_reason":"length"' in answer.body)
    results.append((number, answer.headers.get("x-variant"), whole, answer.body[-300:]))


def traffic(server, numbers, until):
    """Clients that take the next number until there is none, or `until` holds."""
    results, waiting = [], queue.SimpleQueue()
    for number in numbers:
        waiting.put(number)

    def client():
        while not until():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            ask_one(server, number, results)
    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def seconds_of(record):
    return datetime.datetime.fromisoformat(record["time"].replace("Z", "+00:00")).timestamp()


def figures(server, results):
    """From the log, whose lines are in the order of what happened."""
    records = server.records()
    trip = next(i for i, r in enumerate(records) if r["event"] == "audit" and
                json.loads(r["decision"])["what"] == "breaker_opened")
    decision, at = json.loads(records[trip]["decision"]), seconds_of(records[trip])
    ended = [r for r in records if r["event"] == "request_ended"]
    at_candidate = [r for r in ended if r["variant"] == "candidate" or r["moved"]]
    return {
        "why": decision["why"], "numbers": decision["numbers"],
        "requests_until_trip": sum(r["event"] == "request_moved" or
                                   r["event"] == "request_ended" and r["variant"] == "candidate"
                                   for r in records[:trip]),
        "candidate_requests": len(at_candidate),
        "moved": sum(r["event"] == "request_moved" for r in records),
        "last_to_candidate_seconds": max(
            [0, *(seconds_of(r) - r["seconds"] - at for r in at_candidate)]),
        "failed": sum(r["outcome"] == "failed" for r in ended) +
        sum(not whole for _, _, whole, _ in results),
        "trips": [name for name in ("non_finite", "top1_std", "loops", "errors", "slow")
                  if server.counted("zerope_breaker_trips_total", reason=name)]}


def case(zerope, model, name, folder):
    bad = pathlib.Path(folder) / f"{name}.gguf"
    {"nan": bad_files.overflowing, "confused": bad_files.confused,
     "slow": bad_files.deep}[name](model, bad)
    with running.Server(zerope, model, "-c", 512, "--no-pack-cache", *SERVER,
                        template=running.TEMPLATE) as server:
        results = traffic(server, range(WARM), lambda: False)
        server.wait_until(lambda: server.audit("baseline_calibrated"), "calibration")
        server.post("/admin/models", {"action": "load-candidate", "path": str(bad)})
        server.wait_until(lambda: rollout(server)["canary"]["state"] == "held", "candidate")
        set_share(server, 50)
        begun = time.monotonic()
        results += traffic(server, range(WARM, WARM + MOST_REQUESTS),
                           lambda: bool(server.audit("breaker_opened")))
        took = time.monotonic() - begun
        if not server.audit("breaker_opened"):
            return {"name": name, "holds": False, "why": "the breaker stayed closed"}
        after = traffic(server, range(10000, 10000 + AFTER), lambda: False)
        found = figures(server, results + after)
        back = all(variant == "baseline" for _, variant, _, _ in after)
        assert server.stop() == 0
    holds = back and found["failed"] == 0 and found["numbers"].get("in_a_row", 1) <= 5 and \
        found["last_to_candidate_seconds"] <= 1 and found["trips"][0] in REASONS[name]
    return {"name": name, "holds": holds, "seconds": took, "after_at_baseline": back, **found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("zerope")
    parser.add_argument("--model", default=SMALL)
    parser.add_argument("--ids", type=int, default=100000)
    parser.add_argument("--most-off", type=float, default=0.3)
    parser.add_argument("--cases", default="nan,confused,slow")
    args = parser.parse_args()
    found, holds = shares(args.zerope, args.ids, args.most_off)
    with tempfile.TemporaryDirectory() as folder:
        cases = [case(args.zerope, args.model, name, folder) for name in args.cases.split(",")]
    print(json.dumps({"shares": found, "cases": cases}))
    return 0 if holds and all(c["holds"] for c in cases) else 1


if __name__ == "__main__":
    sys.exit(main())
