"""witness_file.py: a small GGUF model as a Spec and its tensors, rows of q and k by original pair.

Owns: which keys say what, and the way from a file's order of rows to that of training: pair i of a
head in rows 2i, 2i + 1, whatever the file's order (arch_gguf.py). Biases and gains of q and k move
with the rows. Reads with the `gguf` package; shares no code with the engine. What it does not
understand it refuses.
"""

import gguf
import numpy as np

import ref_forward as rf

INTERLEAVED, HALVES = ("llama", "granite", "smollm3"), ("qwen2", "qwen3", "gemma3")


class Keys:
    """A file's keys; architecture keys by their name behind the architecture's."""

    def __init__(self, reader):
        self.all = {k: f.contents() for k, f in reader.fields.items()}
        self.file_arch = self.all["general.architecture"]
        self.ours = self.file_arch.startswith("zerope-")
        self.arch = self.file_arch.removeprefix("zerope-")
        assert self.arch in INTERLEAVED + HALVES, self.arch

    def get(self, key, default=None):
        return self.all.get(f"{self.file_arch}.{key}", default)

    def own(self, key, default=None):
        return self.all.get(f"zerope.{key}", default)


# ---------------------------------------------------------------- positions
def angles(keys, spec):
    """A Rope for each layer, also where nothing turns, and the magnitude for the softmax scale."""
    n_rot, theta = keys.get("rope.dimension_count", spec.d_head), keys.get("rope.freq_base", 1e4)
    scaling, factor = keys.get("rope.scaling.type", "none"), keys.get("rope.scaling.factor")
    rope = rf.rope_default(theta, n_rot)
    if scaling == "linear":
        rope = rf.rope_linear(theta, n_rot, factor)
    elif scaling == "yarn":
        rope = rf.rope_yarn(theta, n_rot, factor, keys.get("rope.scaling.original_context_length"))
    else:
        assert scaling == "none", scaling
    swa = rf.rope_default(10000.0, n_rot)  # gemma3's windowed layers: no key says so
    return [swa if keys.arch == "gemma3" and w else rope for w in spec.window], rope.magnitude


def open_pairs(keys, spec):
    """[layer][kv head] -> the pairs that turn, in the file's order."""
    every = list(range(len(spec.rope[0].inv_freq)))
    if not keys.ours:
        turns = [keys.arch != "smollm3" or (i + 1) % 4 for i in range(spec.n_layer)]
        assert keys.get("rope.scaling.finetuned", True)
        return [[every if t else []] * spec.n_kv for t in turns]
    flat, ends = keys.own("position.pairs_open"), keys.own("position.pairs_open_offset")
    if flat is None:
        return [[[]] * spec.n_kv] * spec.n_layer
    heads = [list(flat[a:b]) for a, b in zip(ends, ends[1:])]
    return [heads[i * spec.n_kv : (i + 1) * spec.n_kv] for i in range(spec.n_layer)]


def by_layer(values, spec):
    return None if values is None else np.reshape(np.float64(values), (spec.n_layer, -1))


def read_spec(keys):
    n_head, d_model = keys.get("attention.head_count"), keys.get("embedding_length")
    s = rf.Spec(
        n_layer=keys.get("block_count"),
        d_model=d_model,
        n_head=n_head,
        n_kv=keys.get("attention.head_count_kv"),
        d_head=keys.get("attention.key_length", d_model // n_head),
        eps=float(np.float32(keys.get("attention.layer_norm_rms_epsilon"))),
    )
    gemma, window = keys.arch == "gemma3", keys.get("attention.sliding_window", 0)
    assert gemma or not window
    s.window = [0 if gemma and (i + 1) % 6 == 0 else window for i in range(s.n_layer)]
    s.sandwich, s.act = gemma, "gelu" if gemma else "silu"
    s.rope, magnitude = angles(keys, s)
    s.open_pairs = open_pairs(keys, s)
    s.attn_scale = keys.get("attention.scale", s.d_head**-0.5) * magnitude**2
    s.embed_scale = keys.get("embedding_scale", d_model**0.5 if gemma else 1.0)
    s.residual_scale = keys.get("residual_scale", 1.0)
    s.logit_scale = 1.0 / keys.get("logit_scale", 1.0)
    s.head_window = by_layer(keys.own("attention.head_window"), s)
    s.sinks = keys.own("attention.sinks", 0)
    s.bias_gate = by_layer(keys.own("position.bias_gate"), s)
    s.scale_c = keys.own("attention.scale_c")
    s.scale_len = keys.own("attention.scale_len", 0)
    # of Spec's fields, `bias` holds functions; here its tensors are parameters
    s.t5_max = keys.own("position.t5_max", 128)
    return s


# ---------------------------------------------------------------- order of rows
def file_channels(keys, spec, layer, kv):
    """File channel of each channel of a head by original pair."""
    n_pair = len(spec.rope[layer].inv_freq)
    at = np.arange(spec.d_head)
    pair, part = at[: 2 * n_pair] // 2, at[: 2 * n_pair] % 2
    if keys.ours:
        first = spec.open_pairs[layer][kv]
        slots = first + [p for p in range(n_pair) if p not in first]
        at[: 2 * n_pair] = 2 * np.argsort(slots)[pair] + part
    elif keys.arch in HALVES:
        at[: 2 * n_pair] = pair + n_pair * part
    return at


def by_pair(keys, spec, name, x):
    """Rows of q and k, their biases and gains; shared gains are one head's."""
    part = name.split(".")[2] if name.startswith("blk.") else ""
    if part not in ("attn_q", "attn_k", "attn_q_norm", "attn_k_norm"):
        return x
    heads = x.reshape(-1, spec.d_head, *([] if "_norm" in part else x.shape[1:]))
    assert len(heads) == (spec.n_head if "attn_q" in part else spec.n_kv) or not keys.ours
    layer, group = int(name.split(".")[1]), max(1, len(heads) // spec.n_kv)
    out = [h[file_channels(keys, spec, layer, i // group)] for i, h in enumerate(heads)]
    return np.stack(out).reshape(x.shape)


def read(path):
    """-> Spec, {name in the file: float64 array, rows first}."""
    reader = gguf.GGUFReader(str(path))
    keys = Keys(reader)
    spec, tensors = read_spec(keys), {}
    for t in reader.tensors:
        assert t.name not in ("rope_freqs.weight", "output.weight"), t.name
        x = gguf.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1]).astype(np.float64)
        tensors[t.name] = by_pair(keys, spec, t.name, x)
    return spec, tensors
