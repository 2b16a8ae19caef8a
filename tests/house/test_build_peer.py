#!/usr/bin/env python3
"""test_build_peer: tools/build_peer.py names what a folder lacks, and leaves no half-made binary."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent.parent.parent / "tools"
sys.path.insert(0, str(TOOLS))
import build_peer  # noqa: E402

PARTS = ("src/libllama.a", "ggml/src/libggml.a", "ggml/src/libggml-cpu.a",
         "ggml/src/libggml-base.a", "vendor/include/llama.h")


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


class Building(unittest.TestCase):
    """A tree of empty files; `must` stands for the compilers."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.llama = pathlib.Path(self.folder.name) / "llama"
        self.binary = self.llama / "bin/peer_deep"
        for part in PARTS:
            write(self.llama / part)
        must = build_peer.must
        self.addCleanup(setattr, build_peer, "must", must)
        build_peer.must = self.compiler
        self.linked, self.dies = 0, False

    def compiler(self, command):
        out = pathlib.Path(command[command.index("-o") + 1])
        write(out, "half")
        if command[0] == "g++":
            self.linked += 1
            if self.dies:
                raise KeyboardInterrupt
            write(out, f"whole {self.linked}")

    def build(self):
        self.assertEqual(build_peer.peer_binary(self.llama, "peer_deep"), self.binary)
        return self.binary.read_text(encoding="utf-8")

    def test_builds_when_missing_or_older(self):
        self.assertEqual([self.build(), self.build()], ["whole 1", "whole 1"])
        os.utime(self.binary, (0, 0))
        self.assertEqual(self.build(), "whole 2")
        self.assertEqual(os.listdir(self.binary.parent), ["peer_deep"])

    def test_interrupted_link_leaves_what_was_there(self):
        for before in ([], ["peer_deep"]):
            self.dies = True
            with self.assertRaises(KeyboardInterrupt):
                self.build()
            self.assertEqual(os.listdir(self.binary.parent), before)
            self.dies = False
            self.assertEqual(self.build(), f"whole {self.linked}")
            os.utime(self.binary, (0, 0))

    def test_names_what_is_missing(self):
        for part in PARTS:
            (self.llama / part).rename(self.llama / "away")
            name = "include/llama.h" if part.endswith(".h") else part.rpartition("/")[2]
            with self.assertRaisesRegex(SystemExit, f"peer_deep: {self.llama} has no {name}: "):
                self.build()
            (self.llama / "away").rename(self.llama / part)
        with self.assertRaisesRegex(SystemExit, "peer_x: there is no peer_x.c"):
            build_peer.peer_binary(self.llama, "peer_x")


class Program(unittest.TestCase):
    def test_wrong_folder_is_one_line(self):
        with tempfile.TemporaryDirectory() as empty:
            for folder in (empty, f"{empty}/none"):
                done = subprocess.run([TOOLS / "build_peer.py", folder, "peer_deep"],
                                      capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertRegex(done.stderr, f"^build_peer: peer_deep: {folder} has no lib.*\n$")


if __name__ == "__main__":
    unittest.main()
