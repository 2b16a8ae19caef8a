#!/usr/bin/env python3
"""half_file.py: a copy of a GGUF file of ours with a plan for position mode half.

Usage: half_file.py ZEROPE SOURCE TARGET [AUTO-THRESHOLD]
In each head every third pair rotates in mode half; auto leaves mode full beyond the threshold
[1000]. No model was trained for that: it is for tests of the modes, not for texts.
"""
import json
import pathlib
import struct
import subprocess
import sys

U32, STRING, ARRAY = 4, 8, 9
WIDTH = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form="<Q"):
        value, = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        size = self.number()
        self.at += size
        return self.data[self.at - size:self.at].decode(errors="replace")

    def skip(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            inner, n = self.number("<I"), self.number()
            for _ in range(n if inner == STRING else 0):
                self.text()
            self.at += 0 if inner == STRING else n * WIDTH[inner]
        else:
            self.at += WIDTH[kind]


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def key(name, value):
    head = text(name)
    if isinstance(value, list):
        return head + struct.pack(f"<IIQ{len(value)}I", ARRAY, U32, len(value), *value)
    return head + struct.pack("<II", U32, value)


def with_keys(source, target, keys):
    """Adds keys; what the tensors hold stays where it is behind the header."""
    data = pathlib.Path(source).read_bytes()
    c = Cursor(data)
    assert data[:4] == b"GGUF", source
    c.at = 8
    n_tensors, n_keys, align = c.number(), c.number(), 32
    for _ in range(n_keys):
        name, kind = c.text(), c.number("<I")
        if name == "general.alignment":
            align = struct.unpack_from("<I", data, c.at)[0]
        c.skip(kind)
    begin = c.at
    for _ in range(n_tensors):
        c.text()
        n_dims = c.number("<I")
        c.at += 8 * n_dims + 4 + 8
    added = b"".join(key(name, value) for name, value in keys.items())
    head = data[:8] + struct.pack("<QQ", n_tensors, n_keys + len(keys)) + data[24:begin] + added + \
        data[begin:c.at]
    rest = -(-c.at // align) * align
    pathlib.Path(target).write_bytes(head.ljust(-(-len(head) // align) * align, b"\0") + data[rest:])


def half_file(zerope, source, target, threshold=1000):
    shown = json.loads(subprocess.run([str(zerope), "inspect", str(source), "--json", "--quiet"],
                                      check=True, stdout=subprocess.PIPE).stdout)
    pairs, offsets = [], [0]
    for head in range(shown["n_layer"] * shown["n_kv"]):
        pairs += range(head % 3, shown["rope"]["n_pair"], 3)
        offsets.append(len(pairs))
    with_keys(source, target, {"zerope.position.half_pairs": pairs,
                               "zerope.position.half_pairs_offset": offsets,
                               "zerope.position.auto_threshold": threshold})
    return target


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    half_file(*sys.argv[1:4], *map(int, sys.argv[4:]))
