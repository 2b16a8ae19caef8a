#!/usr/bin/env python3
"""synthetic_gguf.py: a llama of a given geometry with random weights, for speed and memory.

Usage: tools/synthetic_gguf.py OUT.gguf [--layers N] [--width N] [--ffn N] [--heads N] [--kv N]
                               [--vocab N]
The default geometry is that of Llama-3.2-1B. Tensor types are those of llama.cpp's Q4_K_M: Q4_K,
but Q6_K for token_embd and, in half of the layers, attn_v and ffn_down. There is no tokenizer.
Bytes depend on the geometry only.
"""
import argparse
import random
import struct

U32, F32, STR = 4, 6, 8
TYPE_F32, TYPE_Q4_K, TYPE_Q6_K = 0, 12, 14
BLOCK = 256
ALIGN = 32


def half(x):
    return struct.pack("<e", x)


def q4_k(rng, n):
    """Blocks of d, dmin (f16), 12 bytes of scales and mins, 128 of quants."""
    head = half(2e-4) + half(1.5e-3)
    return b"".join(head + rng.randbytes(140) for _ in range(n // BLOCK))


def q6_k(rng, n):
    """Blocks of 192 bytes of quants, 16 scales (i8), d (f16)."""
    tail = half(2e-5)
    return b"".join(rng.randbytes(208) + tail for _ in range(n // BLOCK))


def ones(_, n):
    return struct.pack("<f", 1.0) * n


WRITERS = {TYPE_F32: ones, TYPE_Q4_K: q4_k, TYPE_Q6_K: q6_k}


def size_of(kind, n):
    return n * 4 if kind == TYPE_F32 else n // BLOCK * (144 if kind == TYPE_Q4_K else 210)


def tensors(a):
    """[(name, dimensions, type)]: llama-quantize gives every other layer more bits, and all of the
    first and last eighth."""
    d, kv = a.width, a.width // a.heads * a.kv
    rows = [("token_embd.weight", (d, a.vocab), TYPE_Q6_K), ("output_norm.weight", (d,), TYPE_F32)]
    for i in range(a.layers):
        eighth = a.layers // 8
        more = i < eighth or i >= 7 * eighth or (i - eighth) % 3 == 2
        wide = TYPE_Q6_K if more else TYPE_Q4_K
        for name, shape, kind in (("attn_norm", (d,), TYPE_F32), ("attn_q", (d, d), TYPE_Q4_K),
                                  ("attn_k", (d, kv), TYPE_Q4_K), ("attn_v", (d, kv), wide),
                                  ("attn_output", (d, d), TYPE_Q4_K), ("ffn_norm", (d,), TYPE_F32),
                                  ("ffn_gate", (d, a.ffn), TYPE_Q4_K),
                                  ("ffn_up", (d, a.ffn), TYPE_Q4_K),
                                  ("ffn_down", (a.ffn, d), wide)):
            rows.append((f"blk.{i}.{name}.weight", shape, kind))
    return rows


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def key(name, kind, value):
    packed = text(value) if kind == STR else struct.pack("<I" if kind == U32 else "<f", value)
    return text(name) + struct.pack("<I", kind) + packed


def keys(a):
    return [key("general.architecture", STR, "llama"), key("general.name", STR, "synthetic"),
            key("llama.block_count", U32, a.layers), key("llama.context_length", U32, 131072),
            key("llama.embedding_length", U32, a.width),
            key("llama.feed_forward_length", U32, a.ffn),
            key("llama.attention.head_count", U32, a.heads),
            key("llama.attention.head_count_kv", U32, a.kv),
            key("llama.rope.dimension_count", U32, a.width // a.heads),
            key("llama.rope.freq_base", F32, 500000.0),
            key("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
            key("llama.vocab_size", U32, a.vocab), key("tokenizer.ggml.model", STR, "no_vocab")]


def count(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def padded(n):
    return (n + ALIGN - 1) // ALIGN * ALIGN


def write(a):
    rng, rows, at = random.Random(1), tensors(a), 0
    head = [struct.pack("<4sIQQ", b"GGUF", 3, len(rows), len(keys(a)))] + keys(a)
    for name, shape, kind in rows:
        head.append(text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape) +
                    struct.pack("<IQ", kind, at))
        at += padded(size_of(kind, count(shape)))
    with open(a.out, "wb") as out:
        head = b"".join(head)
        out.write(head.ljust(padded(len(head)), b"\0"))
        for _, shape, kind in rows:
            data = WRITERS[kind](rng, count(shape))
            out.write(data.ljust(padded(len(data)), b"\0"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out")
    for name, value in (("layers", 16), ("width", 2048), ("ffn", 8192), ("heads", 32), ("kv", 8),
                        ("vocab", 128256)):
        parser.add_argument("--" + name, type=int, default=value)
    a = parser.parse_args()
    if a.width % BLOCK or a.ffn % BLOCK or a.width % a.heads or a.heads % a.kv:
        parser.error("width and ffn: multiples of 256; heads divide the width, kv the heads")
    write(a)


if __name__ == "__main__":
    main()
