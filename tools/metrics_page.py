#!/usr/bin/env python3
"""metrics_page.py: the list of metrics in docs/SERVER.md, from src/obs/metric_table.inc.

Usage: tools/metrics_page.py OBS_PRINT [--check]
Rewrites what stands between the two `metrics` marks with what the program (tests/obs_print of a
build) prints; --check only tells whether it is up to date (exit code 1 if not).
"""
import pathlib
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/SERVER.md"
BEGIN, END = "<!-- metrics: made by tools/metrics_page.py -->", "<!-- end of metrics -->"


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--check"]):
        print(__doc__)
        return 2
    table = subprocess.run([sys.argv[1], "page"], capture_output=True, text=True, check=True).stdout
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    new = before + BEGIN + "\n" + table + "\n" + END + rest.split(END)[1]
    if sys.argv[2:]:
        print("docs/SERVER.md: the list of metrics is " + ("current" if new == page else "stale"))
        return new != page
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
