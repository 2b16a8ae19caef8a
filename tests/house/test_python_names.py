#!/usr/bin/env python3
"""test_python_names.py: no program in Python uses a name that is not there (pyflakes).

Long acceptance lines are run seldom: one of them ended after an hour in a name that was not imported.
The planted file shows that the check sees such a thing.
"""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDERS = ("scripts", "tools", "bench", "tests")


def programs():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and (path.suffix == ".py" or b"python3" in path.open("rb").readline()):
                yield path


def findings(*paths):
    done = subprocess.run(["pyflakes3", *map(str, paths)], capture_output=True, text=True,
                          check=False)
    return done.stdout + done.stderr if done.returncode else ""


def main():
    with tempfile.TemporaryDirectory() as folder:
        planted = pathlib.Path(folder) / "planted.py"
        planted.write_text("def line():\n    return commit()\n", encoding="utf-8")
        if "undefined name 'commit'" not in findings(planted):
            sys.exit("pyflakes3 does not see an undefined name")
    found = findings(*programs())
    print(found, end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
