#!/usr/bin/env python3
"""test_start.py: bench/start takes turns, times the first byte and the end, and tells what failed.

Usage: tests/cli/test_start.py BINARY
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
START = ROOT / "bench/start"
MODEL = ROOT / "tests/data/arch/gguf/gguf-qwen2.gguf"
BINARY = os.path.abspath(sys.argv.pop(1))


class Start(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="zerope-start-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def start(self, *words, code=0):
        done = subprocess.run([str(START), *map(str, words)], text=True, capture_output=True,
                              check=False, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_commands_take_turns_and_the_first_round_does_not_count(self):
        self.start("--rounds", 3, "-o", "out.json", "LOG=log sh -c 'echo a >>$LOG; echo'",
                   "sh -c 'echo b >>log; sleep 0.02; echo; sleep 0.02'")
        self.assertEqual((self.folder / "log").read_text(encoding="utf-8").split(),
                         list("abba" "abba"))
        document = json.loads((self.folder / "out.json").read_text(encoding="utf-8"))
        self.assertEqual(len(document["rounds"]), 3)
        row = document["rows"][1]
        self.assertGreaterEqual(row["first_ms"], 20)
        self.assertGreaterEqual(row["end_ms"], row["first_ms"] + 20)
        self.assertEqual(document["rows"][0]["first_ratio"], 1)

    def test_failures_are_told(self):
        self.assertIn("exit code 3", self.start("sh -c 'echo x; exit 3'", code=1).stderr)
        self.assertIn("wrote nothing", self.start("true", code=1).stderr)
        self.assertIn("No such file", self.start("/nowhere/zerope run", code=1).stderr)
        self.start("--rounds", 2, "echo x", code=2)

    def test_binary_starts(self):
        run = "XDG_CACHE_HOME=%s %s logits %s --ids '1 2'" % (self.folder, BINARY, MODEL)
        self.assertIn("3 rounds", self.start("--rounds", 3, run, run + " --no-pack-cache").stdout)


if __name__ == "__main__":
    unittest.main()
