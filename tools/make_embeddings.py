#!/usr/bin/env python3
"""make_embeddings.py: true embeddings of small models: tests/data/embeddings.json.

Usage: make_embeddings.py     (needs numpy)

Hidden rows are ref_forward.py's, in float64, on the weights of tests/data/arch. Before they count,
the logits made of them must be those that transformers gave (tests/data/arch/NAME.json), to 1e-8 of
the largest. An embedding is the last row, the mean of all, or the first; divided by its length, but
for `raw`.
"""

import json
import math
from pathlib import Path

import numpy as np
import ref_forward as rf

DATA = Path(__file__).resolve().parent.parent / "tests/data"
LENGTHS = [1, 17, 56]


def read_safetensors(path):
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    out = {}
    for name, t in json.loads(raw[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + o for o in t["data_offsets"])
        if t["dtype"] == "BF16":  # the upper half of a float32
            x = (np.frombuffer(raw[begin:end], "<u2").astype("<u4") << 16).view("<f4")
        else:
            x = np.frombuffer(raw[begin:end], {"F32": "<f4", "F16": "<f2"}[t["dtype"]])
        out[name] = x.reshape(t["shape"])
    return out


def spec_of(c, rope, **more):
    return rf.Spec(
        n_layer=c["num_hidden_layers"],
        d_model=c["hidden_size"],
        n_head=c["num_attention_heads"],
        n_kv=c["num_key_value_heads"],
        d_head=c["head_dim"],
        eps=c["rms_norm_eps"],
        rope=rope,
        **more,
    )


def plain(c):
    return spec_of(c, [rf.rope_default(c["rope_theta"], c["head_dim"])] * c["num_hidden_layers"])


def gemma3(c):
    n = c["head_dim"]
    wide = rf.rope_linear(c["rope_theta"], n, c["rope_scaling"]["factor"])
    near = rf.rope_default(c["rope_local_base_freq"], n)
    is_wide = [
        (i + 1) % c["sliding_window_pattern"] == 0 for i in range(c["num_hidden_layers"])
    ]
    return spec_of(
        c,
        [wide if w else near for w in is_wide],
        window=[0 if w else c["sliding_window"] for w in is_wide],
        attn_scale=c["query_pre_attn_scalar"] ** -0.5,
        embed_scale=math.sqrt(c["hidden_size"]),
        norm_plus_one=True,
        sandwich=True,
        act="gelu",
    )


def confirm(name, spec, weights, truth):
    ours = rf.forward(spec, weights, truth["ids"])[truth["rows"]]
    theirs = np.array(truth["logits"])
    off = np.abs(ours - theirs).max() / np.abs(theirs).max()
    assert off < 1e-8, (name, off)
    return float(f"{off:.1e}")


def rounded(x):
    return [float(f"{v:.9g}") for v in x]


def case(name, make_spec):
    folder = DATA / "arch" / name
    spec = make_spec(json.loads((folder / "config.json").read_text()))
    weights = read_safetensors(folder / "model.safetensors")
    truth = json.loads((DATA / "arch" / f"{name}.json").read_text())
    off = confirm(name, spec, weights, truth)
    texts = []
    for n in LENGTHS:
        rows = rf.hidden(spec, rf.as_float64(weights), truth["ids"][:n])
        pooled = {"last": rows[-1], "mean": rows.mean(0), "first": rows[0]}
        unit = {k: rounded(v / np.linalg.norm(v)) for k, v in pooled.items()}
        texts.append({"n": n, **unit, "raw": {k: rounded(v) for k, v in pooled.items()}})
    return {"name": name, "logits_off": off, "ids": truth["ids"], "texts": texts}


if __name__ == "__main__":
    cases = [case("llama", plain), case("qwen3", plain), case("gemma3", gemma3)]
    doc = {"made_with": "tools/ref_forward.py (numpy float64)", "cases": cases}
    (DATA / "embeddings.json").write_text(json.dumps(doc, indent=0) + "\n")
    print(*(f"{c['name']}: logits within {c['logits_off']:.1e}" for c in cases), sep="\n")
