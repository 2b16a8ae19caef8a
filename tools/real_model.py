"""real_model.py: a GGUF file (llama, gemma3) as de-quantised Hugging Face weights and a Spec.

Owns: the way back from GGUF names, row order and gains to ref_forward.py's conventions. Reads with
the `gguf` package, so neither names nor de-quantisation are ours.
"""

import gguf
import numpy as np

import arch_gguf as ag
import ref_forward as rf


def field(reader, key, default=None):
    f = reader.fields.get(key)
    return default if f is None else f.contents()


def halves(w, n_head, d_head):
    """Undoes the interleaving of arch llama's q and k rows."""
    back = np.argsort(ag.channel_order(d_head))
    return ag.reorder_rows(w, n_head, [back] * n_head)


def names_back(n_layer, gemma):
    names = {v: k for k, v in ag.TOP.items()}
    for part, ours in (ag.GEMMA_NAMES if gemma else ag.NAMES).items():
        for i in range(n_layer):
            for kind in ("weight", "bias"):
                names[f"blk.{i}.{ours}.{kind}"] = f"model.layers.{i}.{part}.{kind}"
    return names


def load(path, dtype=np.float32):
    """-> Spec, {HF name: array of dtype}; gemma gains as stored by transformers (gain - 1)."""
    r = gguf.GGUFReader(str(path))
    arch = field(r, "general.architecture")
    assert arch in ("llama", "gemma3"), arch
    gemma = arch == "gemma3"

    def get(key, default=None):
        return field(r, f"{arch}.{key}", default)

    n_head, d_model = get("attention.head_count"), get("embedding_length")
    d_head = get("attention.key_length") or d_model // n_head
    spec = rf.Spec(n_layer=get("block_count"), d_model=d_model, n_head=n_head, d_head=d_head,
                   n_kv=get("attention.head_count_kv"), eps=get("attention.layer_norm_rms_epsilon"))
    rope = rf.rope_default(get("rope.freq_base", 10000.0), d_head)
    spec.rope, spec.window = [rope] * spec.n_layer, [0] * spec.n_layer
    if gemma:
        full = [(i + 1) % 6 == 0 for i in range(spec.n_layer)]
        spec.rope = [rope if g else rf.rope_default(10000.0, d_head) for g in full]
        spec.window = [0 if g else get("attention.sliding_window") for g in full]
        spec.norm_plus_one = spec.sandwich = True
        spec.act, spec.embed_scale = "gelu", d_model**0.5
    names, weights = names_back(spec.n_layer, gemma), {}
    for t in r.tensors:
        x = gguf.dequantize(t.data, t.tensor_type).astype(dtype).reshape(t.shape[::-1])
        name = names[t.name]
        if not gemma and ("q_proj" in name or "k_proj" in name):
            x = halves(x, n_head if "q_proj" in name else spec.n_kv, d_head)
        weights[name] = x - 1 if gemma and name.endswith("norm.weight") else x
    return spec, weights
