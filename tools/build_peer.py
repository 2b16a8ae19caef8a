#!/usr/bin/env python3
"""build_peer.py: the peer programs of this folder, compiled against a llama.cpp build tree.

Usage: tools/build_peer.py LLAMA NAME      builds NAME.c if need be, prints LLAMA/bin/NAME
LLAMA: build tree with the static libraries, and with llama.cpp's sources below it.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def must(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"build_peer: {' '.join(map(str, command))[:200]}\n{done.stderr[-2000:]}")


def find(program, llama, name, below=None):
    """The first file of this name in the tree (right in a folder `below`)."""
    for path in sorted(llama.rglob(name)):
        if below is None or path.parent.name == below:
            return path
    wanted = f"{below}/{name}" if below else name
    sys.exit(f"build_peer: {program}: {llama} has no {wanted}: expected a build tree of llama.cpp "
             "with static libraries, and its sources below it")


def compile_peer(out, source, libs, includes):
    """The binary appears under its name whole or not at all: it would count as newer."""
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as tmp:
        obj, binary = Path(tmp) / f"{out.name}.o", Path(tmp) / out.name
        must(["gcc", "-O2", "-std=c17", "-Wall", "-Wextra", *(f"-I{i}" for i in includes), "-c",
              source, "-o", obj])
        must(["g++", obj, "-o", binary, *libs, "-fopenmp", "-lpthread", "-ldl", "-lm"])
        os.replace(binary, out)


def peer_binary(llama, name):
    """bin/NAME, compiled if it is missing or older than its source or the library."""
    out, source = llama / "bin" / name, HERE / f"{name}.c"
    if not source.exists():
        sys.exit(f"build_peer: {name}: there is no {source.name} beside this script")
    libs = [find(name, llama, f"lib{n}.a") for n in ("llama", "ggml", "ggml-cpu", "ggml-base")]
    newest = max(p.stat().st_mtime for p in (source, *libs))
    if out.exists() and out.stat().st_mtime >= newest:
        return out
    include = find(name, llama, "llama.h", "include").parent
    out.parent.mkdir(exist_ok=True)
    compile_peer(out, source, libs, (include, include.parent / "ggml/include"))
    return out


def main():
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    print(peer_binary(Path(sys.argv[1]), sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
