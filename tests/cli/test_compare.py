#!/usr/bin/env python3
"""test_compare.py: bench/compare takes turns, computes what it says it computes, and tells what is
missing. Figures come from stand-ins for the engines; one run is with the real binary.

Usage: tests/cli/test_compare.py BINARY
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMPARE = ROOT / "bench/compare"
MODEL = ROOT / "tests/data/arch/gguf/gguf-qwen2.gguf"
BINARY = os.path.abspath(sys.argv.pop(1))

# Writes its name to the log and gives, run by run, the next of its speeds.
ENGINE = """#!/usr/bin/env python3
import json, os, signal, sys, time
name, speeds, log = %r, %r, %r
with open(log, "a+") as stream:
    stream.seek(0)
    turn = stream.read().split().count(name)
    stream.write(name + "\\n")
if speeds[turn] is None:
    sys.exit("zerope: error: " + name + " gave up")
if speeds[turn] == "Ctrl-C":
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(60)
if "llama" in name:
    print(json.dumps([{"n_prompt": 0, "n_gen": 8, "n_depth": 64, "samples_ts": [speeds[turn]] * 3},
                      {"n_prompt": 16, "n_gen": 0, "n_depth": 64, "samples_ts": [1, 2, 9]}]))
else:
    row = {"depth": 64, "batch": 1, "tokens": 8, "tps_median": speeds[turn],
           "cpu_seconds_median": 0.01, "peak_gbps": 40 + turn, "fraction": 0.5 + turn / 10}
    print(json.dumps({"rows": [dict(row, test="fill"), dict(row, test="decode")]}))
"""


class Compare(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="zerope-compare-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.log = self.folder / "log"

    def engine(self, name, speeds):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(ENGINE % (name, speeds, str(self.log)), encoding="utf-8")
        path.chmod(0o755)
        return path

    def compare(self, *words, code=0, llama=None):
        env = {k: v for k, v in os.environ.items() if k != "LLAMA"}
        env["XDG_CACHE_HOME"] = str(self.folder)
        if llama:
            env["LLAMA"] = str(llama)
        done = subprocess.run([str(COMPARE), *map(str, words)], env=env, text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def document(self, *words, **options):
        path = self.folder / "out.json"
        done = self.compare(*words, "-m", MODEL, "-o", path, **options)
        return json.loads(path.read_text(encoding="utf-8")), done.stdout

    def test_runs_take_turns_and_ratios_are_taken_within_pairs(self):
        a = self.engine("a", [200.0, 210.0, 95.0])
        b = self.engine("b", [100.0, 100.0, 50.0])
        found, text = self.document(a, b, "--pairs", 3)
        self.assertEqual(self.log.read_text(encoding="utf-8").split(), list("ababab"))
        row = found["rows"][1]
        self.assertEqual([r["test"] for r in found["rows"]], ["fill", "decode"])
        self.assertEqual((row["depth"], row["batch"], row["a"], row["b"]), (64, 1, 200, 100))
        self.assertAlmostEqual(row["ratio"], 2.0)  # of 2.0, 2.1, 1.9
        self.assertAlmostEqual(row["ratio_quartiles"][0], 1.95)
        self.assertAlmostEqual(row["ratio_quartiles"][1], 2.05)
        noise = 1.05 + 0.75 * (210 / 95 - 1.05)  # third quartile of 210/200, 210/95
        self.assertAlmostEqual(row["noise"][0], 1 / noise)
        self.assertAlmostEqual(row["noise"][1], noise)
        self.assertAlmostEqual(row["cpu_ratio"], 1.0)
        self.assertAlmostEqual(row["fraction"], 0.6)
        self.assertEqual([p["read_gbps"] for p in found["pairs"]], [40, 41, 42])
        self.assertTrue(all(len(p["load"]) == 2 for p in found["pairs"]))
        self.assertEqual(found["pairs"][1]["a"][1]["tps"], 210)
        self.assertIn("2.000", text)

    def test_llama_bench_is_the_peer_without_another_binary(self):
        a = self.engine("a", [30.0] * 3)
        self.engine("bin/llama-bench", [10.0] * 3)
        found, _ = self.document(a, "--pairs", 3, "-d", "64", llama=self.folder)
        self.assertEqual([r["test"] for r in found["rows"]], ["decode"])  # what both measured
        self.assertAlmostEqual(found["rows"][0]["ratio"], 3.0)
        self.assertNotIn("cpu_ratio", found["rows"][0])

    def test_interruption_keeps_the_finished_pairs(self):
        a = self.engine("a", [2.0] * 9)
        found, _ = self.document(a, self.engine("b", [1.0] * 3 + ["Ctrl-C"]), "--pairs", 7)
        self.assertEqual(len(found["pairs"]), 3)
        self.assertAlmostEqual(found["rows"][0]["ratio"], 2.0)
        self.refused("too few pairs", a, self.engine("c", ["Ctrl-C"]), "-m", MODEL)

    def test_real_documents_are_understood(self):
        found, _ = self.document(BINARY, BINARY, "--pairs", 3, "-p", 8, "-n", 4, "-d", "0,1k",
                                 "--batch", "1,2", "-t", 1, "--args-b=--exact")
        self.assertEqual([(r["test"], r["depth"], r["batch"]) for r in found["rows"]],
                         [("prefill", 0, 1), ("decode", 0, 1), ("decode", 0, 2), ("fill", 1024, 1),
                          ("prefill", 1024, 1), ("decode", 1024, 1), ("decode", 1024, 2)])
        for row in found["rows"]:
            self.assertGreater(row["ratio"], 0)
            self.assertGreater(row["cpu_ratio"], 0)
        self.assertIn("--exact", found["b"])
        self.assertNotIn("--exact", found["a"])

    def refused(self, part, *words, code=2, **options):
        self.assertIn(part, self.compare(*words, code=code, **options).stderr)

    def test_what_is_missing_is_told_before_any_work(self):
        a = self.engine("a", [1.0])
        model = ("-m", MODEL)
        self.refused("set LLAMA", a, *model)
        self.refused("/nowhere/bin/llama-bench: no such program", a, *model, llama="/nowhere")
        self.refused("/nowhere/zerope: no such program", a, "/nowhere/zerope", *model)
        self.refused("/nowhere/zerope: no such program", "/nowhere/zerope", a, *model)
        self.refused("none.gguf: no such model", a, a, "-m", "none.gguf")
        self.refused("at least 3", a, a, *model, "--pairs", 2)
        self.refused("numbers like", a, a, *model, "-d", "0,x")
        self.engine("bin/llama-bench", [1.0])
        self.refused("one sequence", a, *model, "--batch", 2, llama=self.folder)
        self.assertFalse(self.log.exists())

    def test_a_run_that_fails_is_shown(self):
        a, b = self.engine("a", [1.0] * 3), self.engine("b", [1.0, None])
        self.refused("b gave up", a, b, "-m", MODEL, code=1)
        self.refused("not understood", a, "/bin/true", "-m", MODEL, code=1)


if __name__ == "__main__":
    unittest.main()
