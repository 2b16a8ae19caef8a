#!/usr/bin/env python3
"""served: a server of ours under load.py, its memory meanwhile, and three books that must agree.

Usage: served.py ZEROPE MODEL [options of load.py] [--warm S] [--server 'more options']
Books: what the clients saw, /metrics, and the log, request by request. Memory: resident bytes every
second; the slope is that of a line through all samples after WARM seconds [half the time].
Exit code 1: a request failed, or the books do not agree.
"""
import argparse
import collections
import json
import pathlib
import shlex
import statistics
import sys
import threading

import load

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/serve"))
import running  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20


class Memory:
    """Samples of a process's resident bytes until it is stopped."""

    def __init__(self, pid):
        self.pid, self.samples, self.over = pid, [], threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        at = 0
        while True:
            self.samples.append((at, running.resident_bytes(self.pid) / MIB))
            at += 1
            if self.over.wait(1):
                return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def figures(self, warm):
        late = [s for s in self.samples if s[0] >= warm]
        slope = statistics.linear_regression(*zip(*late)).slope * 60 if len(late) > 2 else None
        return {"first_mib": self.samples[0][1], "last_mib": self.samples[-1][1],
                "most_mib": max(m for _, m in self.samples), "warm_seconds": warm,
                "samples": len(late), "slope_mib_per_minute": slope}


def outcomes(server):
    """{outcome: n} and accepted, of /metrics, once nothing is under way."""
    def settled():
        samples = server.metrics()
        accepted = sum(v for k, v in samples.items()
                       if k.startswith("zerope_requests_accepted_total{"))
        ended = {o: sum(v for k, v in samples.items() if k.startswith("zerope_requests_total{") and
                        f'outcome="{o}"' in k) for o in ("completed", "cancelled", "failed")}
        return accepted == sum(ended.values()) and {"accepted": accepted, **ended}
    return server.wait_until(settled, "end of all requests")


def compare_books(clients, metrics, log):
    """What does not agree. A client that left may have been told everything by then."""
    wrong, count = [], collections.Counter
    for name, outcome in clients.items():
        allowed = {"completed": ("completed",), "left": ("cancelled", "completed"),
                   "failed": ("failed",), "refused": ()}[outcome]
        told = log.get(name, [])
        if len(told) != (outcome != "refused") or not set(told) <= set(allowed):
            wrong.append(f"{name}: {outcome} for its client, in the log: {told or 'nothing'}")
    ended = count(o for told in log.values() for o in told)
    for outcome in ("completed", "cancelled", "failed"):
        if ended[outcome] != metrics[outcome]:
            wrong.append(f"{outcome}: {ended[outcome]} in the log, {metrics[outcome]} in /metrics")
    if metrics["accepted"] != sum(o != "refused" for o in clients.values()):
        wrong.append(f"accepted: {metrics['accepted']} of {len(clients)} asked")
    return wrong


def main():
    parser = argparse.ArgumentParser(parents=[load.parser_of_load()],
                                     description=__doc__.split("\n", 1)[0])
    parser.add_argument("zerope")
    parser.add_argument("model")
    parser.add_argument("--warm", type=float)
    parser.add_argument("--server", default="")
    args = parser.parse_args()
    small = pathlib.Path(args.model).is_dir()  # has no template of its own
    with running.Server(args.zerope, args.model, *shlex.split(args.server),
                        template=running.TEMPLATE if small else None) as server:
        with Memory(server.process.pid) as memory:
            found, clients = load.measure(server.url, args)
        metrics = outcomes(server)
        metrics["refused"] = server.counted("zerope_requests_refused_total")
        code = server.stop()
        log = collections.defaultdict(list)
        for record in server.records("request_ended"):
            log[record["request_id"]].append(record["outcome"])
    wrong = compare_books(clients, metrics, log)
    holds = not wrong and code == 0 and found["failed"] == 0 and found["completed"] > 0
    print(json.dumps({
        **found, "metrics": metrics, "log": collections.Counter(
            o for told in log.values() for o in told), "books_agree": not wrong,
        "wrong": wrong[:20],
        "memory": memory.figures(args.seconds / 2 if args.warm is None else args.warm)}))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
