#!/usr/bin/env python3
"""interrupt.py: starts a command, waits for a sign of work, sends SIGINT, tells how it ended.

Usage: interrupt.py stdout|stderr TEXT COMMAND [WORDS ...]

TEXT is looked for in what the command writes to that stream; an empty TEXT waits for any output.
Prints `exit CODE`; fails when the command ends by itself or does not end within 30 s.
"""
import os
import select
import signal
import subprocess
import sys
import time

stream, text, command = sys.argv[1], sys.argv[2].encode(), sys.argv[3:]
# A fresh process group and default signals, as at a terminal.
child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
pipes = {child.stdout: b"", child.stderr: b""}
watched = child.stdout if stream == "stdout" else child.stderr
sent, end = False, time.monotonic() + 120
while pipes and time.monotonic() < end:
    for pipe in select.select(list(pipes), [], [], 1)[0]:
        data = os.read(pipe.fileno(), 65536)
        if not data:
            del pipes[pipe]
            continue
        pipes[pipe] += data
    if not sent and watched in pipes and len(pipes[watched]) > 0 and text in pipes[watched]:
        child.send_signal(signal.SIGINT)
        sent, end = True, time.monotonic() + 30
if pipes:
    child.kill()
    sys.exit("no end in time (signal sent: %s)" % sent)
code = child.wait()
if not sent:
    sys.exit("ended by itself with %d before the sign" % code)
print("exit %d" % code)
