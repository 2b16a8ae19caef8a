"""accept_resident.py: programs that stay loaded and are measured in turns, one working at a time.

A program reads one request a line and answers each with one number (bench/deep.c). While one works
the others wait for their input and use no processor: what they used all the same is recorded.
"""
import os
import pathlib
import subprocess
import time

REST = 0.2  # seconds before a measurement: threads of the last program stop spinning


class Resident:
    def __init__(self, *command):
        self.command = [str(c) for c in command]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.process.kill()
        self.process.__exit__(None, None, None)  # its input ends, and with it the program

    def ask(self, request):
        try:
            self.process.stdin.write(request + "\n")
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"{' '.join(self.command)}: ended at {request!r}")
        return float(answer)

    def processor_seconds(self):
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        return sum(map(int, stat.rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def measure(sides, name, request, reads=False):
    """One side's seconds, and the processor seconds of the others meanwhile.

    With `reads` also the read bandwidth (GB/s) that it measures right before and after.
    """
    time.sleep(REST)
    side, others = sides[name], [s for n, s in sides.items() if n != name]
    used = sum(s.processor_seconds() for s in others)
    gbps = [side.ask("read")] if reads else []
    seconds = side.ask(request)
    gbps += [side.ask("read")] if reads else []
    found = {"seconds": seconds, "idle_cpu": sum(s.processor_seconds() for s in others) - used}
    return {**found, "read_gbps": sum(gbps) / 2} if reads else found


def in_turn(sides, number, request, reads=()):
    """Each side answers once, every second time in the opposite order; sides in `reads` read."""
    load = os.getloadavg()[0]
    order = list(sides)[::-1 if number % 2 else 1]
    return {"load": load, "order": order,
            **{name: measure(sides, name, request, name in reads) for name in order}}
