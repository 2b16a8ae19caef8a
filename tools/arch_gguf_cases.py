"""arch_gguf_cases.py: the small models stored as GGUF of stock architectures, with truth from
transformers (from ref_forward.py where it has no such form)."""

import dataclasses

import gguf
import numpy as np

import arch_case as ac
import arch_gguf as ag
import ref_forward as rf
from arch_case import (
    GEMMA,
    TOK,
    VOCAB,
    base_config,
    gemma_spec,
    gemma_without,
    make_ids,
    make_weights,
    spec_of,
    without_rope,
)


# ---------------------------------------------------------------- GGUF, stock architectures
GG = {
    "n_layer": 2,
    "d_model": 32,
    "n_head": 4,
    "n_kv": 2,
    "d_head": 8,
    "d_ff": 32,
    "n_vocab": VOCAB,
    "eps": 1e-5,
    "n_ctx": 64,
}


def gguf_case(
    name,
    arch,
    shape,
    weights,
    ids,
    spec,
    without,
    *,
    config=None,
    keys=None,
    extra=None,
    orders=None,
    gemma=False,
    about="",
):
    """orders: None = halves as in the source, else function(layer) -> channel order per KV head."""
    path = ac.OUT / "gguf" / f"{name}.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    moved = ag.reorder_qk(weights, shape, orders) if orders else weights
    ag.write(path, arch, shape, moved, TOK, keys=keys, extra=extra, gemma=gemma)
    ac.save_case(
        name,
        spec,
        weights,
        ids,
        without=without,
        config=config,
        about=about,
        n_ctx=shape["n_ctx"],
        source={"gguf": f"gguf/{name}.gguf"},
    )


def interleaved(shape):
    order = ag.channel_order(shape["d_head"])
    return lambda layer: [order] * shape["n_kv"]


def rope_keys(theta, n_rot, scaling=None, factor=None, n_orig=None):
    def put(w):
        w.add_rope_dimension_count(n_rot)
        w.add_rope_freq_base(theta)
        if scaling:
            w.add_rope_scaling_type(scaling)
            w.add_rope_scaling_factor(factor)
        if n_orig:
            w.add_rope_scaling_orig_ctx_len(n_orig)

    return put


def make_gguf_llama():
    kinds = gguf.RopeScalingType
    w, ids = make_weights(11, GG, "f16", tied=True), make_ids(11)

    def cfg(**more):
        return base_config(
            "llama",
            "LlamaForCausalLM",
            GG,
            **({"tie_word_embeddings": True, "rope_theta": 10000.0} | more),
        )

    plain = spec_of(GG, rope=rf.rope_default(1e4, 8))
    inv = plain.rope[0].inv_freq
    common = {"orders": interleaved(GG)}
    no_order = ag.reorder_qk(w, GG, interleaved(GG))  # rows read as if they were halves
    scaled = rf.rope_llama3(1e4, 8, 8.0, 1.0, 4.0, 48)
    s = spec_of(GG, rope=scaled)
    gguf_case(
        "gguf-llama-llama3",
        "llama",
        GG,
        w,
        ids,
        s,
        {"rope_freqs": plain, "row order": rf.forward(s, no_order, ids)},
        config=cfg(
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 48,
            }
        ),
        keys=rope_keys(1e4, 8),
        extra={"rope_freqs.weight": inv / scaled.inv_freq},
        about="rope_freqs.weight divides the angles",
        **common,
    )
    gguf_case(
        "gguf-llama-linear",
        "llama",
        GG,
        w,
        ids,
        spec_of(GG, rope=rf.rope_linear(1e4, 8, 4.0)),
        {"scaling": plain},
        config=cfg(rope_scaling={"rope_type": "linear", "factor": 4.0}),
        keys=rope_keys(1e4, 8, kinds.LINEAR, 4.0),
        **common,
    )
    gguf_case(
        "gguf-llama-yarn",
        "llama",
        GG,
        w,
        ids,
        spec_of(GG, rope=rf.rope_yarn(1e4, 8, 4.0, 32)),
        {"scaling": plain},
        config=cfg(
            rope_scaling={
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        ),
        keys=rope_keys(1e4, 8, kinds.YARN, 4.0, 32),
        **common,
    )
    kept = [[[0, 2]] * 2] * 2
    gguf_case(
        "gguf-llama-closed",
        "llama",
        GG,
        w,
        ids,
        dataclasses.replace(plain, open_pairs=kept),
        {"closing": plain, "rotation": without_rope(plain)},
        keys=rope_keys(1e4, 8),
        extra={"rope_freqs.weight": [1.0, 1e30, 1.0, 1e30]},
        about="the uniform stock export: pairs 1 and 3 closed in all layers by 1e30",
        **common,
    )


def make_gguf_relatives():
    w, ids = make_weights(12, GG, "f16", tied=True), make_ids(12)
    plain = spec_of(GG, rope=rf.rope_default(1e4, 8))
    scales = {"embed_scale": 4.0, "residual_scale": 0.6, "attn_scale": 0.7, "logit_scale": 1 / 8.0}
    granite = dataclasses.replace(plain, **scales)

    def granite_keys(finetuned):
        def put(k):
            rope_keys(1e4, 8)(k)
            k.add_embedding_scale(4.0)
            k.add_residual_scale(0.6)
            k.add_attention_scale(0.7)
            k.add_logit_scale(8.0)
            if not finetuned:
                k.add_rope_scaling_finetuned(False)

        return put

    c = base_config(
        "granite",
        "GraniteForCausalLM",
        GG,
        tie_word_embeddings=True,
        rope_theta=10000.0,
        embedding_multiplier=4.0,
        residual_multiplier=0.6,
        attention_multiplier=0.7,
        logits_scaling=8.0,
    )
    gone = {k: dataclasses.replace(granite, **{k: getattr(plain, k)}) for k in scales}
    gguf_case(
        "gguf-granite",
        "granite",
        GG,
        w,
        ids,
        granite,
        gone,
        config=c,
        keys=granite_keys(True),
        orders=interleaved(GG),
        about="logit_scale divides",
    )
    none = without_rope(granite)
    gguf_case(
        "gguf-granite-none",
        "granite",
        GG,
        w,
        ids,
        none,
        {"finetuned false": granite},
        keys=granite_keys(False),
        orders=interleaved(GG),
        about="rope.scaling.finetuned = false: no rotation in the whole model",
    )

    shape = GG | {"n_layer": 4}
    w, ids = make_weights(13, shape, "f16", tied=True), make_ids(13)
    rope = rf.rope_default(1e5, 8)
    s = spec_of(shape, rope=[rope, rope, rope, None])
    c = base_config(
        "smollm3", "SmolLM3ForCausalLM", shape, tie_word_embeddings=True, rope_theta=100000.0
    )
    gguf_case(
        "gguf-smollm3",
        "smollm3",
        shape,
        w,
        ids,
        s,
        {"every 4th": spec_of(shape, rope=rope)},
        config=c,
        keys=rope_keys(1e5, 8),
        orders=interleaved(shape),
        about="no rotation in every 4th layer; no key says so",
    )

    shape = GG | {"eps": 1e-6}
    w, ids = make_weights(14, shape, "f16", tied=True, bias=True), make_ids(14)
    s = spec_of(shape, rope=rf.rope_default(1e6, 8))
    c = base_config(
        "qwen2", "Qwen2ForCausalLM", shape, tie_word_embeddings=True, rope_theta=1000000.0
    )
    del c["head_dim"]
    inter = ag.reorder_qk(w, shape, interleaved(shape))
    gguf_case(
        "gguf-qwen2",
        "qwen2",
        shape,
        w,
        ids,
        s,
        {"halves": rf.forward(s, inter, ids)},
        config=c,
        keys=rope_keys(1e6, 8),
        about="rows in halves; biases on q, k, v",
    )

    shape = GG | {"eps": 1e-6, "d_head": 12}
    w, ids = make_weights(15, shape, "f16", tied=True, qk_norm=True, qk_std=0.02), make_ids(15)
    s = spec_of(shape, rope=rf.rope_default(1e6, 12))
    c = base_config(
        "qwen3", "Qwen3ForCausalLM", shape, tie_word_embeddings=True, rope_theta=1000000.0
    )
    flat = {k: np.ones_like(v) if "q_norm" in k else v for k, v in w.items()}
    gguf_case(
        "gguf-qwen3",
        "qwen3",
        shape,
        w,
        ids,
        s,
        {"rotation": without_rope(s), "q norm gain": rf.forward(s, flat, ids)},
        config=c,
        keys=rope_keys(1e6, 12),
        about="rows in halves; n_head * d_head != d_model",
    )


def make_gguf_gemma():
    shape = GEMMA | {"d_model": 32, "d_head": 10, "d_ff": 20}
    w = make_weights(16, shape, "f16", qk_norm=True, qk_std=0.02, gemma=True, tied=True)
    ids = make_ids(16)
    s = gemma_spec(shape, 10000.0, rf.rope_linear(1e6, 10, 8.0), None)
    c = base_config(
        "gemma3_text",
        "Gemma3ForCausalLM",
        shape,
        tie_word_embeddings=True,
        rope_theta=1e6,
        rope_local_base_freq=1e4,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        sliding_window=16,
        sliding_window_pattern=6,
        query_pre_attn_scalar=10,
        hidden_activation="gelu_pytorch_tanh",
    )
    del c["hidden_act"]

    def keys(k):
        rope_keys(1e6, 10, gguf.RopeScalingType.LINEAR, 8.0)(k)
        k.add_sliding_window(16)

    lost = gemma_without(s, rf.rope_default(1e6, 10))
    del lost["attn_scale"]
    gguf_case(
        "gguf-gemma3",
        "gemma3",
        shape,
        w,
        ids,
        s,
        lost,
        config=c,
        keys=keys,
        gemma=True,
        about="pattern 6 and local theta 10000 are not in the file; gains stored as 1 + w",
    )


MAKERS = (make_gguf_llama, make_gguf_relatives, make_gguf_gemma)
