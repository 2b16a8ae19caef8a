#!/usr/bin/env python3
"""Writes tests/data/quant_blocks.h: blocks of every tensor type with the f32 values that the numpy
implementation of the PyPI package gguf gives, plus one hash per type over many random blocks.

  python3 tools/quant_reference.py > tests/data/quant_blocks.h     (needs: pip install gguf numpy)

Blocks are splitmix64 bytes (seed = type number) in which every float field has the top bit of its
exponent cleared, so that nothing is infinite or NaN; zeros, subnormals and negative scales occur.
"""
import numpy as np
import gguf
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T

HALVES = {  # offsets of f16 fields in a block
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82],
    T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0],
    T.MXFP4: [], T.F16: [0], T.BF16: [0], T.F32: [2]}
MANY = 4096  # blocks under each hash


def splitmix_bytes(seed, n):
    i = np.arange(1, (n + 7) // 8 + 1, dtype=np.uint64)
    z = np.uint64(seed) + i * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).view(np.uint8)[:n].copy()


def blocks_of(t):
    size = GGML_QUANT_SIZES[t][1]
    b = splitmix_bytes(int(t), MANY * size).reshape(MANY, size)
    for at in HALVES[t]:
        b[:, at + 1] &= 0xBF
    if t == T.MXFP4:
        b[:, 0] &= 0x7F
    return b


def fnv(values):
    """FNV-1a over the 32-bit patterns, a word at a time."""
    h = 0xCBF29CE484222325
    for word in values.view(np.uint32).ravel().tolist():
        h = ((h ^ word) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def main():
    print("/* quant_blocks.h: made by tools/quant_reference.py with gguf "
          f"{version()}; do not edit. */")
    print("static const struct quant_case {\n    const char *name;\n    uint64_t hash;"
          f" /* over {MANY} blocks */\n    size_t n; /* weights below */\n    const char *block;\n"
          "    const char *value; /* f32 bits, most significant digit first */\n"
          "} quant_cases[] = {")
    for t in HALVES:
        block, size = GGML_QUANT_SIZES[t]
        b = blocks_of(t)
        with np.errstate(all="ignore"):
            values = gguf.quants.dequantize(b.reshape(-1), t).astype(np.float32)
        count = {1: 32, 32: 3, 256: 1}[block]
        raw = b[:count].tobytes().hex()
        bits = "".join(f"{v:08x}" for v in values[:count * block].view(np.uint32))
        print(f'    {{"{t.name}", 0x{fnv(values):016x}u, {count * block},')
        for text, end in ((raw, ","), (bits, "},")):
            rows = [text[i:i + 80] for i in range(0, len(text), 80)]
            print("\n".join(f'     "{r}"' for r in rows) + end)
    print("};")


def version():
    import importlib.metadata
    return importlib.metadata.version("gguf")


main()
