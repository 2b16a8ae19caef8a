#!/usr/bin/env python3
"""file_map.py: the table of files in docs/ARCHITECTURE.md, from the first sentence of each head.

Usage: tools/file_map.py [--check]
Rewrites what stands between the two `file map` marks; --check only tells whether it is up to date
(exit code 1 if not). A .c and a .h of the same stem share a line, which the .c file gives; kernel
variants of one operation family (attend_ref.c, attend_avx2.c, attend_avx512.c) have one each.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/ARCHITECTURE.md"
BEGIN, END = "<!-- file map: made by tools/file_map.py -->", "<!-- end of file map -->"
FOLDERS = ["include/zerope", "src/base", "src/kern", "src/kern/ref", "src/kern/x86", "src/model",
           "src/eval", "src/dist", "src/dist/mpi", "src/train", "src/evap", "src/report", "src/obs",
           "src/serve", "cli", "examples", "bench", "bench/serve", "scripts", "tools",
           "tests", "tests/unit", "tests/kern", "tests/grad", "tests/golden", "tests/fault",
           "tests/fuzz", "tests/obs", "tests/cli", "tests/serve", "tests/dist", "tests/house"]


def head(path):
    """The first comment's first sentence, without the file's name."""
    text = path.read_text(encoding="utf-8", errors="replace")
    match = re.match(r"/\*\s*(.*?)\*/", text, re.S) or \
        re.match(r'(?:#![^\n]*\n)?"""(.*?)"""', text, re.S) or \
        re.match(r"(?:#![^\n]*\n)?((?:#[^\n]*\n)+)", text)
    if not match:
        return ""
    text = re.sub(r"\n\s*(?:\*|#)? ?", "\n", "\n" + match[1])
    text = text.strip().split("\n\n")[0]
    text = " ".join(text.split())
    text = re.sub(r"^[\w.-]+(?: \(\w+\))?: ", "", text)
    end = re.search(r"(?<!e\.g)\.(?= |$)|\?(?= |$)", text)
    return (text[:end.end()] if end else text).rstrip(".").replace("|", "\\|")


def files():
    run = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"],
                         capture_output=True, text=True, check=True)
    for name in sorted(set(run.stdout.split("\n"))):  # a conflict is listed once a side
        path = ROOT / name
        kind = path.suffix in (".c", ".h", ".py", ".sh", ".inc") or \
            name.startswith(("scripts/", "bench/"))
        if name and kind and path.is_file():
            yield pathlib.PurePosixPath(name)


def table():
    by_folder = {folder: {} for folder in FOLDERS}
    for path in files():
        folder = str(path.parent)
        if folder in by_folder:
            by_folder[folder].setdefault(path.stem, []).append(path)
    lines = []
    for folder, stems in by_folder.items():
        if not stems:
            continue
        lines += ["", "**%s/**" % folder, "", "| file | what it owns |", "| --- | --- |"]
        for stem, paths in sorted(stems.items()):
            names = [p.name for p in sorted(paths, key=lambda p: p.suffix)]
            pair = names == [stem + ".c", stem + ".h"]
            name = stem + ".{c,h}" if pair else ", ".join(names)
            lines.append("| `%s` | %s |" % (name, head(ROOT / paths[0])))
    return "\n".join(lines) + "\n\n"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__)
        return 2
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    new = before + BEGIN + "\n" + table() + END + after
    if sys.argv[1:]:
        print("docs/ARCHITECTURE.md: the file map is " + ("current" if new == page else "stale"))
        return new != page
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
