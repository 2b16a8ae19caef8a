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


def keys_of(data):
    """Cursor behind the keys, and {key: where its value is}."""
    c, places = Cursor(data), {}
    c.at = 16
    for _ in range(c.number()):
        name, kind = c.text(), c.number("<I")
        places[name] = c.at
        c.skip(kind)
    return c, places


def tensors(data):
    """What a file holds; begin: in the file."""
    c, places = keys_of(data)
    rows, align, n_tensors = [], 32, struct.unpack_from("<Q", data, 8)[0]
    if "general.alignment" in places:
        align = struct.unpack_from("<I", data, places["general.alignment"])[0]
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


def deep(source, target, times=8):
    """So many times the layers; the further ones add nothing to what the first ones say."""
    data = pathlib.Path(source).read_bytes()
    c, places = keys_of(data)
    key, = [name for name in places if name.endswith(".block_count")]
    n_layer, = struct.unpack_from("<I", data, places[key])
    head, rows, infos, at = bytearray(data[:c.at]), [], b"", 0
    struct.pack_into("<I", head, places[key], n_layer * times)
    for t in tensors(data):
        part = t.name.split(".", 2)
        for copy in range(times if part[0] == "blk" else 1):
            name = t.name if copy == 0 else f"blk.{int(part[1]) + copy * n_layer}.{part[2]}"
            silent = copy > 0 and part[2] in ("attn_output.weight", "ffn_down.weight")
            infos += struct.pack(f"<Q{len(name)}sI{len(t.shape)}QIQ", len(name), name.encode(),
                                 len(t.shape), *t.shape, t.kind, at)
            rows.append((t, silent))
            at += -(-t.size // 32) * 32
    struct.pack_into("<Q", head, 8, len(rows))
    head += infos
    with open(target, "wb") as out:
        out.write(head.ljust(-(-len(head) // 32) * 32, b"\0"))
        for t, silent in rows:
            piece = bytes(t.size) if silent else data[t.begin:t.begin + t.size]
            out.write(piece.ljust(-(-t.size // 32) * 32, b"\0"))
    return target


def cut_off(source, target):
    """Only the beginning of the file is there."""
    data = pathlib.Path(source).read_bytes()
    pathlib.Path(target).write_bytes(data[:len(data) * 2 // 3])
    return target
