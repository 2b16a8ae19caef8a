#!/usr/bin/env python3
"""run.py: runs the command-line cases and compares what they print.

Usage: tests/cli/run.py BINARY [--group quick|model] [--rewrite] [NAME ...]

A case is cases/NAME.sh, a bash script that finds the binary as `zerope` and runs in an empty
folder. Next to it cases/NAME.out holds its exact standard output; without that file it must print
nothing.
Its head may say, one per line:
  # exit: 3               the exit code (default 0)
  # stderr: TEXT          a pattern (fnmatch) that one line of standard error must match; repeatable
  # group: model          it needs the real models (default: quick)
  # glob                  lines of NAME.out are patterns; a line `...` stands for any lines
  # timeout: 60           seconds (default 60)
  # needs: COMMAND        the case is left out where this command fails; $BINARY is the binary
Variables: DATA (tests/data), TOOLS (tests/cli), SMOLLM2 and GEMMA3 (models), ROOT (the repository).
There is no cache folder (XDG_CACHE_HOME is no folder): a case that wants one names it.
--rewrite writes NAME.out from what the case printed; read the diff before a commit.
Exit code 1 when a case fails.
"""
import argparse
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.join(HERE, "cases")
ROOT = os.path.dirname(os.path.dirname(HERE))


def models_folder():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("ZEROPE_MODELS") or os.path.join(cache, "zerope", "models")


def read_case(name):
    case = {"name": name, "exit": 0, "stderr": [], "group": "quick", "glob": False, "timeout": 60,
            "needs": None}
    with open(os.path.join(CASES, name + ".sh"), encoding="utf-8") as stream:
        for line in stream:
            match = re.match(r"# (exit|stderr|group|glob|timeout|needs):? ?(.*)$", line.rstrip("\n"))
            if not match:
                continue
            key, value = match[1], match[2]
            if key == "stderr":
                case["stderr"].append(value)
            elif key == "glob":
                case["glob"] = True
            else:
                case[key] = value if key in ("group", "needs") else int(value)
    return case


def environment(binary, folder):
    env = {k: v for k, v in os.environ.items() if not k.startswith("ZEROPE_") and k != "NO_COLOR"}
    os.makedirs(os.path.join(folder, "bin"))
    os.symlink(binary, os.path.join(folder, "bin", "zerope"))
    env["PATH"] = os.path.join(folder, "bin") + os.pathsep + env["PATH"]
    env["DATA"] = os.path.join(ROOT, "tests", "data")
    env["TOOLS"], env["ROOT"], env["LC_ALL"] = HERE, ROOT, "C.UTF-8"
    env["XDG_CACHE_HOME"] = "/dev/null"
    env["SMOLLM2"] = os.path.join(models_folder(), "smollm2-135m-instruct-q4_1.gguf")
    env["GEMMA3"] = os.path.join(models_folder(), "gemma3-270m-q4_k_m.gguf")
    return env


def lines_match(patterns, lines):
    """Whether the patterns, `...` standing for any lines, cover the lines."""
    if not patterns:
        return not lines
    if patterns[0] == "...":
        return any(lines_match(patterns[1:], lines[i:]) for i in range(len(lines) + 1))
    return bool(lines) and fnmatch.fnmatchcase(lines[0], patterns[0]) and \
        lines_match(patterns[1:], lines[1:])


def compare(case, result):
    """What differs, as a list of texts."""
    path = os.path.join(CASES, case["name"] + ".out")
    wanted = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8", newline="") as stream:
            wanted = stream.read()
    differences = []
    if result.returncode != case["exit"]:
        differences.append("exit code %d, expected %d" % (result.returncode, case["exit"]))
    same = lines_match(wanted.splitlines(), result.stdout.splitlines()) if case["glob"] \
        else result.stdout == wanted
    if not same:
        differences.append("standard output differs; expected:\n%s\nfound:\n%s"
                           % (wanted, result.stdout))
    errors = result.stderr.splitlines()
    for pattern in case["stderr"]:
        if not any(fnmatch.fnmatchcase(line, pattern) for line in errors):
            differences.append("no line of standard error matches: %s" % pattern)
    if differences:
        differences.append("standard error:\n%s" % result.stderr)
    return differences


def has_needs(case, binary):
    return case["needs"] is None or \
        subprocess.run(["bash", "-c", case["needs"]], capture_output=True,
                       env={**os.environ, "BINARY": binary}).returncode == 0


def run_case(case, binary, rewrite):
    folder = tempfile.mkdtemp(prefix="zerope-cli-")
    try:
        env = environment(binary, folder)
        work = os.path.join(folder, "work")
        os.makedirs(work)
        try:
            result = subprocess.run(["bash", os.path.join(CASES, case["name"] + ".sh")], cwd=work,
                                    env=env, stdin=subprocess.DEVNULL, timeout=case["timeout"],
                                    capture_output=True, text=True, errors="backslashreplace")
        except subprocess.TimeoutExpired:
            return ["no end within %d s" % case["timeout"]]
        if rewrite and not case["glob"]:
            path = os.path.join(CASES, case["name"] + ".out")
            if result.stdout:
                with open(path, "w", encoding="utf-8", newline="") as stream:
                    stream.write(result.stdout)
            elif os.path.exists(path):
                os.remove(path)
        return compare(case, result)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--group", choices=["quick", "model"])
    parser.add_argument("--rewrite", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_intermixed_args()
    names = args.names or sorted(n[:-3] for n in os.listdir(CASES) if n.endswith(".sh"))
    cases = [read_case(n) for n in names]
    cases = [c for c in cases if args.group in (None, c["group"])]
    failed, binary = 0, os.path.abspath(args.binary)
    for case in cases:
        if not has_needs(case, binary):
            print("left out %s: '%s' fails here" % (case["name"], case["needs"]), flush=True)
            continue
        before = time.monotonic()
        differences = run_case(case, binary, args.rewrite)
        print("%-6s %s (%.1f s)" % ("FAILED" if differences else "ok", case["name"],
                                    time.monotonic() - before), flush=True)
        for text in differences:
            print("  " + text.replace("\n", "\n  "))
        failed += bool(differences)
    print("%d cases, %d failed" % (len(cases), failed))
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
