"""bad_files.py: copies of a GGUF file that are wrong in a way that loading does not show.

For candidates that a roll-out must get rid of.
"""
import collections
import pathlib
import struct

from half_file import Cursor

# bytes and weights of a block, by the number of the type
BLOCKS = {0: (4, 1), 1: (2, 1), 2: (18, 32), 3: (20, 32), 8: (34, 32), 12: (144, 256), 14: (210, 256),
          30: (2, 1)}
Tensor = collections.namedtuple("Tensor", "name shape kind begin size")


def tensors(data):
    """What a file holds; begin: in the file."""
    c, rows, align = Cursor(data), [], 32
    c.at = 8
    n_tensors, n_keys = c.number(), c.number()
    for _ in range(n_keys):
        name, kind = c.text(), c.number("<I")
        if name == "general.alignment":
            align = struct.unpack_from("<I", data, c.at)[0]
        c.skip(kind)
    for _ in range(n_tensors):
        name, n_dims = c.text(), c.number("<I")
        shape = tuple(c.number() for _ in range(n_dims))
        rows.append((name, shape, c.number("<I"), c.number()))
    begin, found = -(-c.at // align) * align, []
    for name, shape, kind, offset in rows:
        n_bytes, n_weights = BLOCKS[kind]
        n = 1
        for d in shape:
            n *= d
        found.append(Tensor(name, shape, kind, begin + offset, n // n_weights * n_bytes))
    return found


def overflowing(source, target):
    """The last norm has finite weights, as loading demands, whose products are not: NaN logits."""
    data = bytearray(pathlib.Path(source).read_bytes())
    norm, = [t for t in tensors(data) if t.name == "output_norm.weight"]
    assert norm.kind == 0, norm
    data[norm.begin:norm.begin + norm.size] = struct.pack("<f", 3e38) * (norm.size // 4)
    pathlib.Path(target).write_bytes(data)
    return target


def confused(source, target):
    """Each layer has the matrices of one far away: finite numbers, and no sense."""
    data = pathlib.Path(source).read_bytes()
    changed, alike = bytearray(data), collections.defaultdict(list)
    for t in tensors(data):
        if t.name.startswith("blk.") and len(t.shape) == 2:
            alike[t.name.split(".", 2)[2], t.shape, t.kind].append(t)
    for same in alike.values():
        for i, t in enumerate(same):
            other = same[(i + len(same) // 3) % len(same)]
            changed[t.begin:t.begin + t.size] = data[other.begin:other.begin + t.size]
    pathlib.Path(target).write_bytes(changed)
    return target


def cut_off(source, target):
    """Only the beginning of the file is there."""
    data = pathlib.Path(source).read_bytes()
    pathlib.Path(target).write_bytes(data[:len(data) * 2 // 3])
    return target
