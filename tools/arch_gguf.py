"""arch_gguf.py: writes weights held under Hugging Face names as GGUF, with the `gguf` package.

Owns: the name map, the row order of each architecture and the tokenizer keys of the small models.
Row orders (n_rot channels of a head, pair j = channels j and j + n_rot/2 in the source):
- interleaved (llama, granite, smollm3): pair j goes to channels 2j, 2j + 1.
- halves (qwen2, qwen3, gemma3): as in the source.
- open first (zerope-*): open pairs at 2i, 2i + 1 in list order, then the closed pairs, ascending.
"""

import gguf
import numpy as np

NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
}
GEMMA_NAMES = NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def gguf_name(name, gemma=False):
    if name in TOP:
        return TOP[name]
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{(GEMMA_NAMES if gemma else NAMES)[part]}.{kind}"


def channel_order(d_head, n_rot=None, open_pairs=None):
    """Source channel that stands at each channel of the interleaved or open-first order."""
    n_rot = n_rot or d_head
    half = n_rot // 2
    pairs = list(range(half)) if open_pairs is None else list(open_pairs)
    pairs += [j for j in range(half) if j not in pairs]
    return np.array([c for j in pairs for c in (j, j + half)] + list(range(n_rot, d_head)))


def reorder_rows(w, n_head, orders):
    """orders: one channel order per head; w has n_head * d_head rows or, a bias, entries."""
    heads = w.reshape(n_head, -1, *w.shape[1:])
    return np.concatenate([heads[h][orders[h]] for h in range(n_head)], 0)


def reorder_qk(weights, shape, orders_of_layer):
    """orders_of_layer(layer) -> channel order per KV head. q, k and their biases move together."""
    out = dict(weights)
    for name, w in weights.items():
        if ".q_proj." not in name and ".k_proj." not in name:
            continue
        per_kv = orders_of_layer(int(name.split(".")[2]))
        n = shape["n_head"] if ".q_proj." in name else shape["n_kv"]
        out[name] = reorder_rows(w, n, [per_kv[h * shape["n_kv"] // n] for h in range(n)])
    return out


def add_tokenizer(w, tok):
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("smollm")
    w.add_token_list(tok["tokens"])
    w.add_token_types(tok["types"])
    w.add_token_merges(tok["merges"])
    w.add_bos_token_id(0)
    w.add_eos_token_id(0)
    w.add_add_bos_token(False)


def u32_array(w, key, values):
    w.add_key_value(
        key, [int(v) for v in values], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT32
    )


def i32_array(w, key, values):
    w.add_key_value(
        key, [int(v) for v in values], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT32
    )


def f32_array(w, key, values):
    w.add_key_value(
        key, [float(v) for v in values], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.FLOAT32
    )


def write(path, arch, shape, weights, tok, *, keys=None, extra=None, gemma=False, dtype=np.float16):
    """keys: function(writer) adding further keys; extra: {name: f32 array}. Matrices are stored in
    dtype (the caller made them representable), vectors in f32; extra tensors in f32."""
    w = gguf.GGUFWriter(str(path), arch)
    w.add_name(path.stem)
    w.add_context_length(shape["n_ctx"])
    w.add_embedding_length(shape["d_model"])
    w.add_block_count(shape["n_layer"])
    w.add_feed_forward_length(shape["d_ff"])
    w.add_head_count(shape["n_head"])
    w.add_head_count_kv(shape["n_kv"])
    w.add_key_length(shape["d_head"])
    w.add_value_length(shape["d_head"])
    w.add_layer_norm_rms_eps(shape["eps"])
    w.add_vocab_size(shape["n_vocab"])
    add_tokenizer(w, tok)
    if keys:
        keys(w)
    for name, x in weights.items():
        x = np.asarray(x, dtype=np.float32)
        if gemma and name.endswith("norm.weight"):
            x = x + np.float32(1.0)  # the file holds the gain itself
        stored = x.astype(dtype) if x.ndim == 2 else x
        assert np.array_equal(stored.astype(np.float32), x), name
        w.add_tensor(gguf_name(name, gemma), stored)
    for name, x in (extra or {}).items():
        w.add_tensor(name, np.asarray(x, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
