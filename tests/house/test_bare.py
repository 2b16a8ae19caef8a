#!/usr/bin/env python3
"""test_bare: a build without the server (ZEROPE_SERVE=OFF) links, says what it lacks, and its tests
link too.

Usage: test_bare.py BUILD-FOLDER COMPILER

The objects of this build are those of the other one, but for two files (CMakeLists.txt): the
program zerope_bare is made of them. So only what differs is compiled, and the rest is looked at:
which tests would be left, and whether one of these refers to what would not be there.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMPILER = sys.argv.pop()
BUILD = pathlib.Path(sys.argv.pop()).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
CASES = sorted(p.stem for p in (SOURCE / "tests/cli/cases").glob("serve_*.sh"))
BARE = BUILD / "zerope_bare"


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def symbols(objects, *flags):
    """name of each symbol -> objects it is in."""
    found = {}
    done = run("nm", "-A", "-P", *flags, *objects)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        path, name = line.split(": ", 1)
        found.setdefault(name.split()[0], []).append(path)
    return found


def tests_of(folder):
    done = run("ctest", "--test-dir", folder, "--show-only=json-v1")
    assert done.returncode == 0, done.stderr
    return {test["name"] for test in json.loads(done.stdout)["tests"]}


class Program(unittest.TestCase):
    def test_it_needs_no_library_of_the_server(self):
        done = run("readelf", "-d", BARE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("libjansson", done.stdout)
        for library in ("libuv", "libssl", "libcrypto"):
            self.assertNotIn(library, done.stdout)

    def test_it_says_what_it_lacks(self):
        done = run(BARE, "serve", "model.gguf")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("this build has no server: it needs libuv, llhttp and OpenSSL", done.stderr)

    def test_it_knows_that(self):
        for program, there in ((BARE, False), (BUILD / "zerope", True)):
            done = run(program, "version", "--features", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIs(json.loads(done.stdout)["features"]["server"], there)


    def test_cases_of_the_command_line_that_need_the_server_are_left_out(self):
        done = run(sys.executable, SOURCE / "tests/cli/run.py", BARE, *CASES)
        self.assertEqual(done.returncode, 0, done.stdout)
        for case in CASES:
            self.assertIn(f"left out {case}", done.stdout)


class Tests(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def configure(self):
        done = run("cmake", "-S", SOURCE, "-B", self.folder.name, "-G", "Ninja",
                   f"-DCMAKE_C_COMPILER={COMPILER}", "-DZEROPE_SERVE=OFF", "-DZEROPE_TESTS=ON")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return self.folder.name

    def test_those_that_are_left_refer_to_nothing_that_is_not_there(self):
        left, here = tests_of(self.configure()), tests_of(BUILD)
        self.assertLess(left, here)
        self.assertIn("test_rollout", left)
        self.assertNotIn("test_service", left)
        objects = (BUILD / "objects.txt").read_text().split()
        # Those of the other build, by the names of their sources.
        kept = json.loads((pathlib.Path(self.folder.name) / "compile_commands.json").read_text())
        names = {pathlib.Path(c["file"]).relative_to(SOURCE) for c in kept}
        server = [o for o in objects if not any(o.endswith(f"/{n}.o") for n in names)]
        self.assertGreater(len(server), 30)
        gone = set(symbols(server, "-g", "--defined-only"))
        tests = [o for name in left
                 for o in (BUILD / "tests/CMakeFiles" / f"{name}.dir").rglob("*.o")]
        self.assertGreater(len(tests), 150)
        used = symbols(tests, "-u")
        there = set(symbols([o for o in objects if o not in server], "-g", "--defined-only"))
        bad = {name: used[name] for name in (gone - there) & set(used)
               if not name.startswith("zp_serve_")}  # service_absent.c has them
        self.assertEqual(bad, {})


if __name__ == "__main__":
    unittest.main()
