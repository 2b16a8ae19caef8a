"""accept_resident.py: programs that stay loaded and are measured in turns, one working at a time.

A program reads one request a line and answers each with one number (bench/deep.c). While one works
the others wait for their input and use no processor: what they used all the same is recorded.
"""
import os
import pathlib
import select
import subprocess
import time

REST = 0.2  # seconds before a measurement: threads of the last program stop spinning


class Resident:
    """Whatever is wrong with an answer is a RuntimeError that begins with the command."""

    patience = 30 * 60  # seconds for one answer

    def __init__(self, *command):
        self.command = [str(c) for c in command]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, bufsize=0)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.process.kill()
        self.process.__exit__(None, None, None)  # its input ends, and with it the program

    def fail(self, what):
        raise RuntimeError(f"{' '.join(self.command)}: {what}")

    def read_line(self, request):
        line, end = b"", time.monotonic() + self.patience
        while not line.endswith(b"\n"):
            left = max(0, end - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                self.fail(f"no answer to {request!r} within {self.patience:g} s")
            piece = os.read(self.process.stdout.fileno(), 4096)
            if not piece:
                self.fail(f"ended at {request!r}")
            line += piece
        return line.decode(errors="replace").strip()

    def ask(self, request):
        try:
            self.process.stdin.write(f"{request}\n".encode())
        except BrokenPipeError:
            self.fail(f"ended before {request!r}")
        answer = self.read_line(request)
        try:
            return float(answer)
        except ValueError:
            self.fail(f"answered {answer!r} to {request!r}, expected a number")

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
