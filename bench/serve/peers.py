#!/usr/bin/env python3
"""peers: the same load on our server and on llama-server, in turns.

Usage: peers.py ZEROPE LLAMA-SERVER MODEL [options of load.py] [--rounds N] [--parallel N] [-c N]
Each run has a fresh server, the same texts and answers of the same length; both have PARALLEL
sequences of N tokens at a time. Throughput is that of whole requests: tokens of their prompts and
answers in a second, from the first question to the last answer. Ratios are those within a round.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request
from statistics import median

import load

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/serve"))
import running  # noqa: E402  pylint: disable=wrong-import-position


class LlamaServer:
    def __init__(self, path, model, args):
        port = running.free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [path, "-m", model, "-c", args.context * args.parallel, "-np", args.parallel,
                   "-t", args.threads, "--port", port]
        self.process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)

    def __enter__(self):
        end = time.monotonic() + running.PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/health"):
                    return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        self.__exit__()
        raise RuntimeError(f"llama-server does not answer; exit code {self.process.poll()}")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def ours(args):
    return running.Server(args.zerope, args.model, "-c", args.context, "-np", args.parallel, "-t",
                          args.threads, template=None)


def main():
    parser = argparse.ArgumentParser(parents=[load.parser_of_load()],
                                     description=__doc__.split("\n", 1)[0])
    parser.add_argument("zerope")
    parser.add_argument("llama")
    parser.add_argument("model")
    parser.add_argument("-c", "--context", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    sides = {"ours": lambda: ours(args),
             "theirs": lambda: LlamaServer(args.llama, args.model, args)}
    rounds = []
    for number in range(args.rounds):
        args.seed += 1
        found = {"load": os.getloadavg()[0]}
        for name in list(sides)[::-1 if number % 2 else 1]:
            with sides[name]() as server:
                found[name], _ = load.measure(server.url, args)
        rounds.append(found)
    ratios = [r["ours"]["tokens_per_second"] / max(r["theirs"]["tokens_per_second"], 1e-9)
              for r in rounds]
    failed = [r[s]["failed"] + r[s]["refused"] for r in rounds for s in sides]
    print(json.dumps({"ratio": median(ratios), "ratios": ratios, "failed": sum(failed),
                      "rounds": rounds}))
    return 1 if any(r["ours"]["failed"] for r in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
