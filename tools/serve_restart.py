#!/usr/bin/env python3
"""serve_restart: seconds of `zerope serve` from its start to the line `ready`, after kill -9.

Usage: tools/serve_restart.py ZEROPE MODEL [TIMES [OPTIONS OF SERVE ...]]

The first start may pack the weights, the others find them packed. Also told: memory of the pool of
keys and values, and what of all memory is in RAM, of which the pool must have nothing yet.
"""
import json
import subprocess
import sys
import time


def start(command):
    begin = time.monotonic()
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    pool = None
    for line in process.stderr:
        record = json.loads(line)
        if record["event"] == "model_loaded":
            pool = record["kv_bytes"]
        if record["event"] == "ready":
            break
    else:
        sys.exit(f"it ended with {process.wait()}")
    seconds = time.monotonic() - begin
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    process.kill()
    process.wait()
    return seconds, pool >> 20, resident >> 10


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    times = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    command = [sys.argv[1], "serve", sys.argv[2], "--port", "0", "--log-format", "json",
               *sys.argv[4:]]
    for _ in range(times):
        print("ready after %.3f s; pool %d MiB; resident %d MiB" % start(command), flush=True)


if __name__ == "__main__":
    main()
