#!/usr/bin/env python3
"""test_accept_resident: programs that stay loaded answer, or are named with what went wrong."""
import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"))
from accept_resident import Resident, in_turn  # noqa: E402


def shell(script):
    return Resident("sh", "-c", script)


class Answers(unittest.TestCase):
    def test_each_request_has_its_own(self):
        with shell('while read x; do echo "$x.5"; done') as side:
            self.assertEqual([side.ask(str(i)) for i in range(3)], [0.5, 1.5, 2.5])

    def test_pieces_of_a_line_are_one_answer(self):
        with shell("read x; printf 1.; sleep 0.1; echo 5") as side:
            self.assertEqual(side.ask("go"), 1.5)

    def test_sides_are_measured_in_both_orders(self):
        with shell("while read x; do echo 1; done") as a, shell("while read x; do echo 2; done") as b:
            for number, order in enumerate((["a", "b"], ["b", "a"])):
                found = in_turn({"a": a, "b": b}, number, "go", reads=("b",))
                self.assertEqual(found["order"], order)
                self.assertEqual([found[s]["seconds"] for s in "ab"], [1, 2])
                self.assertEqual(found["b"]["read_gbps"], 2)


class Failures(unittest.TestCase):
    def check(self, script, what, patience=60, wait=False):
        begin = time.monotonic()
        with self.assertRaises(RuntimeError) as raised, shell(script) as side:
            side.patience = patience
            if wait:
                side.process.wait()
            side.ask("go")
        self.assertEqual(str(raised.exception), f"sh -c {script}: {what}")
        self.assertIsNotNone(side.process.returncode)
        self.assertLess(time.monotonic() - begin, 30)

    def test_dead_program(self):
        self.check("exit 3", "ended before 'go'", wait=True)
        self.check("read x; exit 3", "ended at 'go'")
        self.check("read x; printf 1.5", "ended at 'go'")

    def test_answer_that_is_no_number(self):
        for answer in ("", "fast", "1 2", "1.5s"):
            self.check(f"read x; echo '{answer}'; read x",
                       f"answered {answer!r} to 'go', expected a number")

    def test_no_answer(self):
        self.check("exec sleep 100", "no answer to 'go' within 0.2 s", 0.2)
        self.check("read x; printf 1; exec sleep 100", "no answer to 'go' within 0.2 s", 0.2)

    def test_program_that_is_not_there(self):
        with self.assertRaisesRegex(FileNotFoundError, "no-such-program"):
            Resident("no-such-program")


if __name__ == "__main__":
    unittest.main()
