#!/usr/bin/env python3
"""build_peer.py: the peer programs of this folder, compiled against a llama.cpp build tree.

Usage: tools/build_peer.py LLAMA NAME      builds NAME.c if need be, prints LLAMA/bin/NAME
LLAMA: build tree with the static libraries, and with llama.cpp's sources below it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def must(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"build_peer: {' '.join(map(str, command))[:200]}\n{done.stderr[-2000:]}")


def peer_binary(llama, name):
    """bin/NAME, compiled if it is missing or older than its source or the library."""
    out, source = llama / "bin" / name, HERE / f"{name}.c"
    libs = [next(llama.rglob(f"lib{n}.a")) for n in ("llama", "ggml", "ggml-cpu", "ggml-base")]
    newest = max(p.stat().st_mtime for p in (source, *libs))
    if out.exists() and out.stat().st_mtime >= newest:
        return out
    header = next(p for p in llama.rglob("llama.h") if p.parent.name == "include")
    ggml = header.parent.parent / "ggml/include"
    with tempfile.TemporaryDirectory() as tmp:
        obj = Path(tmp) / f"{name}.o"
        must(["gcc", "-O2", "-std=c17", "-Wall", "-Wextra", "-I", header.parent, "-I", ggml, "-c",
              source, "-o", obj])
        must(["g++", obj, "-o", out, *libs, "-fopenmp", "-lpthread", "-ldl", "-lm"])
    return out


def main():
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    print(peer_binary(Path(sys.argv[1]), sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
