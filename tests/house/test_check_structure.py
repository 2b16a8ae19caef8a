#!/usr/bin/env python3
"""test_check_structure: each rule of scripts/check-structure finds its violation, and only that."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(__file__), "..", "..", "scripts", "check-structure")
GOOD = {
    "src/base/mem.h": "/* mem.h: memory. */\nvoid *mem_alloc(unsigned long n);\n",
    "src/base/mem.c": '/* mem.c: memory. */\n#include "mem.h"\nvoid *malloc(unsigned long);\n'
                      "void *mem_alloc(unsigned long n)\n{\n    return malloc(n);\n}\n",
    "src/model/gguf.h": '/* gguf.h: files. */\n#include "base/mem.h"\n',
    "include/zerope/zerope.h": "/* zerope.h: public. */\ntypedef struct zp zp;\n",
    "cli/main.c": '/* main.c: program. */\n#include <stdio.h>\n#include <zerope/zerope.h>\n'
                  'int main(void)\n{\n    printf("free( atoi(\\n"); /* strcpy( */\n}\n',
}


def body(lines):
    return "int f(void)\n{\n" + "    g();\n" * lines + "}\n"


class Rules(unittest.TestCase):
    def run_on(self, changes, arguments=()):
        with tempfile.TemporaryDirectory() as tree:
            files = dict(GOOD, **changes)
            for path, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(tree, path)), exist_ok=True)
                with open(os.path.join(tree, path), "w") as stream:
                    stream.write(text)
            os.makedirs(os.path.join(tree, "scripts"))
            copy = shutil.copy(SCRIPT, os.path.join(tree, "scripts"))
            run = subprocess.run([sys.executable, copy, *arguments], capture_output=True, text=True,
                                 cwd=tree)
            return run.returncode, run.stdout.strip().split("\n")[:-1]

    def expect(self, changes, place, text):
        code, findings = self.run_on(changes)
        self.assertEqual(code, 1)
        self.assertEqual(len(findings), 1, findings)
        self.assertTrue(findings[0].startswith(place + ": "), findings)
        self.assertIn(text, findings[0])

    def test_good_tree_passes(self):
        self.assertEqual(self.run_on({}), (0, []))

    def test_lower_layer_must_not_see_higher(self):
        self.expect({"src/base/a.h": '/* a.h: a. */\n#include "model/gguf.h"\n'},
                    "src/base/a.h:2", "base must not see model")
        self.expect({"src/report/a.h": '/* a.h: a. */\n#include "model/gguf.h"\n'},
                    "src/report/a.h:2", "report must not see model")
        self.expect({"src/kern/a.h": "/* a.h: a. */\n#include <zerope/zerope.h>\n"},
                    "src/kern/a.h:2", "kern must not see")
        for layer in ("kern", "eval", "train"):
            self.expect({"src/serve/a.h": '/* a.h: a. */\n#include "%s/b.h"\n' % layer},
                        "src/serve/a.h:2", "serve must not see " + layer)
        self.expect({"src/obs/a.h": '/* a.h: a. */\n#include "model/gguf.h"\n'},
                    "src/obs/a.h:2", "obs must not see model")
        self.expect({"src/model/a.h": '/* a.h: a. */\n#include "serve/http.h"\n'},
                    "src/model/a.h:2", "model must not see serve")

    def test_programs_see_only_the_public_interface(self):
        for quoted in ('"base/mem.h"', "<base/mem.h>", '"../src/base/mem.h"'):
            self.expect({"cli/a.c": "/* a.c: a. */\n#include %s\n" % quoted}, "cli/a.c:2",
                        "cli may include only")

    def test_banned_calls_outside_their_home(self):
        for call in ("malloc", "free", "printf", "strcpy", "exit", "getenv", "atoi", "json_loadb"):
            text = "/* gguf.c: a. */\nvoid f(void)\n{\n    %s(1);\n}\n" % call
            self.expect({"src/model/gguf.c": text}, "src/model/gguf.c:4", call + " is banned")
        self.assertEqual(self.run_on({"src/model/gguf.c": "/* gguf.c: a. */\nvoid f(struct a *x)\n"
                                      "{\n    x->free(1);\n    mem_free(x);\n}\n"}), (0, []))

    def test_scripts_are_executable(self):
        self.expect({"tools/a.py": "#!/usr/bin/env python3\n"}, "tools/a.py:1", "not executable")
        self.assertEqual(self.run_on({"tools/a.py": '"""a.py: part of others."""\n'}), (0, []))

    def test_real_numbers_need_numtext(self):
        text = '/* gguf.c: a. */\nvoid f(void)\n{\n    snprintf(t, 9,\n             %s, n, x);\n}\n'
        for form in ('"%g"', '"a%.*f"', '"%5.1E %%"', '"%-*.3g"'):
            self.expect({"src/model/gguf.c": text % form}, "src/model/gguf.c:4",
                        "numtext_printf does not")
        for form in ('"%d%%f"', '"%.*s g"', '"%zu fits"'):
            self.assertEqual(self.run_on({"src/model/gguf.c": text % form}), (0, []))
        self.expect({"src/model/gguf.c": "/* gguf.c: a. */\ndouble f(void)\n{\n    return "
                     "strtod(t, 0);\n}\n"}, "src/model/gguf.c:4", "strtod is banned")

    def test_file_names_are_unique_and_have_headers(self):
        self.expect({"src/kern/mem.h": "/* mem.h: b. */\n"}, "src/kern/mem.h:1", "also used by")
        self.expect({"src/kern/a.c": "/* a.c: b. */\n"}, "src/kern/a.c:1", "no header")
        shared = {"src/kern/ref/a.c": "/* a.c: b. */\n",
                  "src/model/gguf_write.c": "/* gguf_write.c: b. */\n"}
        self.assertEqual(self.run_on(shared), (0, []))

    def test_text_form(self):
        self.expect({"src/base/a.h": "/* a.h: a. */\n\tint b;\n"}, "src/base/a.h:2", "tab")
        self.expect({"src/base/a.h": "/* a.h: a. */\nint b; \n"}, "src/base/a.h:2", "trailing")
        self.expect({"src/base/a.h": "/* a.h: a. */\n// " + "x" * 98 + "\n"}, "src/base/a.h:2",
                    "101 columns")
        self.expect({"src/base/a.h": "/* b.h: a. */\n"}, "src/base/a.h:1", "first line must be")

    def test_sizes(self):
        head = "/* gguf.c: a. */\n"
        self.expect({"src/model/gguf.c": head + body(101)}, "src/model/gguf.c:3", "f has 101 lines")
        self.assertEqual(self.run_on({"src/model/gguf.c": head + body(100)}), (0, []))
        self.assertEqual(self.run_on({"src/kern/ref/a.c": "/* a.c: a. */\n" + body(200)}), (0, []))
        self.expect({"src/kern/ref/a.c": "/* a.c: a. */\n" + body(201)}, "src/kern/ref/a.c:3",
                    "201 lines")
        self.expect({"src/base/a.h": "/* a.h: a. */\n" + "int a;\n" * 900}, "src/base/a.h:902",
                    "901 lines")

    def test_public_header_compiles_alone(self):
        self.expect({"include/zerope/evap.h": "/* evap.h: a. */\nvoid f(size_t n);\n"},
                    "include/zerope/evap.h:1", "does not compile alone")

    def test_wide_registers_outside_their_home(self):
        def assemble(path, text):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            subprocess.run([os.environ.get("CC", "cc"), "-x", "assembler", "-c", "-o", path, "-"],
                           input=text, text=True, check=True)

        with tempfile.TemporaryDirectory() as folder:
            for home, ok in (("model", False), ("kern/x86", True)):
                wide, plain = "%s/src/%s/wide.o" % (folder, home), folder + "/plain.o"
                assemble(wide, "vaddps %ymm0, %ymm1, %ymm2\n")
                assemble(plain, "addps %xmm0, %xmm1\n")
                with open(folder + "/objects.txt", "w") as stream:
                    stream.write(wide + "\n" + plain + "\n")
                code, findings = self.run_on({}, ["--objects", folder + "/objects.txt"])
                self.assertEqual(code, 0 if ok else 1)
                self.assertEqual(any("wide vector register" in f for f in findings), not ok)


if __name__ == "__main__":
    unittest.main()
