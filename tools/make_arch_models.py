#!/usr/bin/env python3
"""make_arch_models.py: small random models of every architecture and their true logits.

Usage: make_arch_models.py [OUT]     (needs torch, transformers, safetensors, gguf, numpy)

Writes
- <folder>/{config*.json, model.safetensors, tokenizer.json, tokenizer_config.json}: Hugging Face
  folders. One set of weights serves several models: each config_<x>.json in a folder stands for
  config.json in turn. Configs are hand-written, in the old spelling (rope_scaling, rope_theta) and
  as config_<x>_v5.json in the new one (rope_parameters).
- gguf/<case>.gguf: files by the `gguf` package: stock architectures and `zerope-llama`.
- <case>.json: {name, folder + configs | gguf, n_ctx, ids, rows, logits, top, made_with, check}.
  logits[i] is the row after token rows[i]; every spelling in `configs` must give them.

Truth. Where transformers has the architecture, its own model code runs in float64 with float64
angles (f64_everywhere) and ref_forward.py must agree to 1e-10 of the largest logit; elsewhere
ref_forward.py alone. `check` holds that distance, the distance of the ordinary f32 run, and, for
each thing a case is about, how far the logits move when it is left out: always >= 1e-3 of the
largest logit, ten times the tolerance of the tests, so that no case is blind.

Weights: std 0.02, except q and k projections of models without q/k norm (0.15; at 0.02 and these
widths attention is almost uniform: taking rotation away moves logits by 1 % instead of 50 %), norm
gains 1 + 0.2 N, biases 0.1 N. All values are exactly representable in the stored type.
"""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import arch_case as ac
import arch_gguf_cases
import arch_zerope_cases
import ref_forward as rf
from arch_case import (
    GEMMA,
    N,
    VOCAB,
    base_config,
    gemma_spec,
    gemma_without,
    spec_of,
    v5_spelling,
    without_rope,
)


class Folder:
    """A Hugging Face folder under construction: one weight file, several configs."""

    def __init__(self, name, shape, seed, store, **kind):
        self.name, self.shape, self.ids = name, shape, ac.make_ids(seed)
        self.weights = ac.make_weights(seed, shape, store, **kind)
        self.store = store
        self.path = ac.OUT / name
        self.path.mkdir(parents=True, exist_ok=True)
        ac.write_tokenizer(self.path)

    def save_weights(self, weights=None):
        t = {
            k: torch.from_numpy(v).to(ac.STORE[self.store]).contiguous()
            for k, v in (weights or self.weights).items()
        }
        save_file(t, str(self.path / "model.safetensors"), metadata={"format": "pt"})

    def case(
        self, name, config, spec, without, *, hf=True, hf_weights=None, about="", default=False
    ):
        stem = "config" if default else "config_" + name.replace("-", "_")
        both = {stem: config, ("config_" + name.replace("-", "_") + "_v5"): v5_spelling(config)}
        for s, c in both.items():
            (self.path / f"{s}.json").write_text(json.dumps(c, indent=1) + "\n")
        if hf:
            a = ac.hf_logits(config, hf_weights or self.weights, self.ids, True)
            b = ac.hf_logits(
                both["config_" + name.replace("-", "_") + "_v5"],
                hf_weights or self.weights,
                self.ids,
                True,
            )
            assert np.array_equal(a, b), f"{name}: the two spellings differ in transformers"
        ac.save_case(
            name,
            spec,
            self.weights,
            self.ids,
            without=without,
            config=config if hf else None,
            hf_weights=hf_weights,
            about=about,
            n_ctx=config["max_position_embeddings"],
            source={"folder": self.name, "configs": [f"{s}.json" for s in both]},
        )


# ---------------------------------------------------------------- Hugging Face folders
LLAMA = {
    "n_layer": 4,
    "d_model": 64,
    "n_head": 4,
    "n_kv": 2,
    "d_head": 16,
    "d_ff": 64,
    "n_vocab": VOCAB,
    "eps": 1e-5,
    "n_ctx": 64,
}


def make_llama_folder():
    f = Folder("llama", LLAMA, 1, "bf16")
    f.save_weights()
    n_rot = LLAMA["d_head"]

    def cfg(kind="llama", cls="LlamaForCausalLM", **more):
        return base_config(
            kind, cls, LLAMA, **({"tie_word_embeddings": False, "rope_theta": 10000.0} | more)
        )

    plain = spec_of(LLAMA, rope=rf.rope_default(1e4, n_rot))
    none = without_rope(plain)
    f.case("llama", cfg(), plain, {"rotation": none}, default=True)
    far = spec_of(LLAMA, rope=rf.rope_default(5e5, n_rot))
    f.case(
        "llama-llama3",
        cfg(
            rope_theta=500000.0,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 48,
            },
        ),
        spec_of(LLAMA, rope=rf.rope_llama3(5e5, n_rot, 8.0, 1.0, 4.0, 48)),
        {"scaling": far, "rotation": none},
    )
    f.case(
        "llama-linear",
        cfg(rope_scaling={"type": "linear", "factor": 4.0}),
        spec_of(LLAMA, rope=rf.rope_linear(1e4, n_rot, 4.0)),
        {"scaling": plain, "rotation": none},
    )
    yarn = rf.rope_yarn(1e4, n_rot, 4.0, 256, 8.0, 1.0)
    f.case(
        "llama-yarn",
        cfg(
            rope_scaling={
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 256,
                "beta_fast": 8.0,
                "beta_slow": 1.0,
            },
            max_position_embeddings=1024,
        ),
        spec_of(LLAMA, rope=yarn),
        {
            "scaling": plain,
            "magnitude": spec_of(LLAMA, rope=rf.Rope(yarn.inv_freq)),
            "betas": spec_of(LLAMA, rope=rf.rope_yarn(1e4, n_rot, 4.0, 256)),
        },
    )
    f.case(
        "llama-dynamic",
        cfg(rope_scaling={"rope_type": "dynamic", "factor": 4.0}, max_position_embeddings=32),
        spec_of(LLAMA, rope=rf.rope_dynamic(1e4, n_rot, 4.0, 32, N)),
        {"scaling": plain},
        about=f"NTK by length, factor of {N} tokens; n_ctx here is the trained length: open the "
        f"sequence for exactly {N}",
    )
    f.case(
        "llama-closed",
        cfg(
            rope_scaling={
                "rope_type": "llama3",
                "factor": 1e30,
                "low_freq_factor": 1e8,
                "high_freq_factor": 2e8,
                "original_max_position_embeddings": 32,
            }
        ),
        none,
        {"closing": plain},
        about="the position-free export: every angle below 1e-28",
    )
    f.case(
        "llama-partial",
        cfg(partial_rotary_factor=0.5),
        spec_of(LLAMA, rope=rf.rope_default(1e4, 8)),
        {"partial": plain, "rotation": none},
        hf=False,
        about="first half of each head rotated (transformers' llama has no such option; "
        "the same rule is checked against its phi3)",
    )
    make_llama_relatives(f, cfg, plain, none)


def make_llama_relatives(f, cfg, plain, none):
    win = [16] * 4
    f.case(
        "mistral",
        cfg("mistral", "MistralForCausalLM", sliding_window=16),
        dataclasses.replace(plain, window=win),
        {"window": plain},
    )
    scales = {
        "embed_scale": 12.0,
        "residual_scale": 0.22,
        "attn_scale": 0.09375,
        "logit_scale": 1 / 8.0,
    }
    granite = dataclasses.replace(plain, **scales)
    gone = {k: dataclasses.replace(granite, **{k: getattr(plain, k)}) for k in scales}
    f.case(
        "granite",
        cfg(
            "granite",
            "GraniteForCausalLM",
            embedding_multiplier=12.0,
            residual_multiplier=0.22,
            attention_multiplier=0.09375,
            logits_scaling=8.0,
        ),
        granite,
        gone | {"rotation": without_rope(granite)},
    )

    def smollm3(name, has_rope, window, about="", **more):
        s = dataclasses.replace(
            plain, window=window, rope=[plain.rope[0] if r else None for r in has_rope]
        )
        inverse = dataclasses.replace(s, rope=[None if r else plain.rope[0] for r in has_rope])
        out = {"polarity": inverse, "no_rope_layers": plain}
        if any(window):
            out["window"] = dataclasses.replace(s, window=[0] * 4)
            out["window on the wrong layers"] = dataclasses.replace(
                s, window=[16 - w for w in window]
            )
        f.case(name, cfg("smollm3", "SmolLM3ForCausalLM", **more), s, out, about=about)

    smollm3(
        "smollm3",
        [1, 1, 1, 0],
        [0] * 4,
        "no list: every 4th layer has no rotation",
        no_rope_layer_interval=4,
    )
    smollm3("smollm3-list", [0, 1, 1, 0], [0] * 4, "1 = has rotation", no_rope_layers=[0, 1, 1, 0])
    smollm3(
        "smollm3-none", [0, 0, 0, 0], [0] * 4, "wholly position-free", no_rope_layers=[0, 0, 0, 0]
    )
    smollm3(
        "smollm3-window",
        [1, 0, 1, 0],
        [0, 16, 0, 16],
        "the window acts on the layers without rotation",
        no_rope_layers=[1, 0, 1, 0],
        use_sliding_window=True,
        sliding_window=16,
    )


SMALL = {
    "n_layer": 3,
    "d_model": 40,
    "n_head": 4,
    "n_kv": 2,
    "d_head": 12,
    "d_ff": 56,
    "n_vocab": VOCAB,
    "eps": 1e-6,
    "n_ctx": 64,
}


def make_qwen_folders():
    shape = SMALL | {"d_head": 10, "n_layer": 2}
    f = Folder("qwen2", shape, 2, "f32", bias=True)
    f.save_weights()
    rope = rf.rope_default(1e6, 10)
    s = spec_of(shape, rope=rope)
    no_bias = {k: v for k, v in f.weights.items() if not k.endswith(".bias")}
    c = base_config(
        "qwen2",
        "Qwen2ForCausalLM",
        shape,
        tie_word_embeddings=False,
        rope_theta=1000000.0,
        use_sliding_window=False,
        sliding_window=16,
        max_window_layers=1,
    )
    del c["head_dim"]
    f.case(
        "qwen2",
        c,
        s,
        {
            "rotation": without_rope(s),
            "bias": rf.forward(s, no_bias, f.ids),
            "use_sliding_window false": dataclasses.replace(s, window=[0, 16]),
        },
        default=True,
        about="a window in the config that use_sliding_window switches off; no head_dim",
    )
    f.case(
        "qwen2-window",
        c | {"use_sliding_window": True},
        dataclasses.replace(s, window=[0, 16]),
        {"window": s, "max_window_layers": dataclasses.replace(s, window=[16] * 2)},
    )

    shape = SMALL | {"d_head": 14}
    f = Folder("qwen3", shape, 3, "f16", qk_norm=True, qk_std=0.02, tied=True)
    f.save_weights()
    s = spec_of(shape, rope=rf.rope_default(1e6, 14))
    c = base_config(
        "qwen3",
        "Qwen3ForCausalLM",
        shape,
        tie_word_embeddings=True,
        rope_theta=1000000.0,
        attention_bias=False,
        use_sliding_window=False,
        sliding_window=None,
        max_window_layers=3,
    )
    bare = {k: v for k, v in f.weights.items() if "q_norm" not in k and "k_norm" not in k}
    flat = {k: np.ones_like(v) if "q_norm" in k else v for k, v in f.weights.items()}
    f.case(
        "qwen3",
        c,
        s,
        {
            "rotation": without_rope(s),
            "q/k norm": rf.forward(s, bare, f.ids),
            "q norm gain": rf.forward(s, flat, f.ids),
        },
        default=True,
        about="n_head * d_head != d_model; tied",
    )
    yarn = rf.rope_yarn(1e6, 14, 4.0, 32)
    f.case(
        "qwen3-yarn",
        c
        | {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            },
            "max_position_embeddings": 128,
        },
        spec_of(shape, rope=yarn),
        {"scaling": s},
    )


def make_gemma_folder():
    f = Folder("gemma3", GEMMA, 4, "bf16", qk_norm=True, qk_std=0.02, gemma=True, tied=True)
    f.save_weights()
    s = gemma_spec(GEMMA, 1000.0, rf.rope_linear(1e5, 18, 8.0), 10**-0.5)
    c = base_config(
        "gemma3_text",
        "Gemma3ForCausalLM",
        GEMMA,
        tie_word_embeddings=True,
        rope_theta=100000.0,
        rope_local_base_freq=1000.0,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        sliding_window=16,
        sliding_window_pattern=6,
        query_pre_attn_scalar=10,
        hidden_activation="gelu_pytorch_tanh",
        attention_bias=False,
    )
    del c["hidden_act"]
    plain = rf.rope_default(1e5, 18)
    f.case(
        "gemma3",
        c,
        s,
        gemma_without(s, plain),
        default=True,
        about="layer 5 is full, the others windowed; linear scaling on it alone; gain is 1 + w",
    )


def make_phi3_folder():
    shape = SMALL | {"d_head": 10, "n_layer": 2}
    f = Folder("phi3", shape, 5, "bf16")
    fused = ac.fuse_phi3(f.weights)
    f.save_weights(fused)
    s = spec_of(shape, rope=rf.rope_default(1e4, 8))
    c = base_config(
        "phi3",
        "Phi3ForCausalLM",
        shape,
        tie_word_embeddings=False,
        rope_theta=10000.0,
        partial_rotary_factor=0.8,
        sliding_window=None,
        original_max_position_embeddings=64,
    )
    del c["head_dim"]
    whole = spec_of(shape, rope=rf.rope_default(1e4, 10))
    f.case(
        "phi3",
        c,
        s,
        {"partial": whole, "rotation": without_rope(s)},
        default=True,
        hf_weights=fused,
        about="fused qkv and gate/up tensors; 8 of 10 channels rotated",
    )


def main():
    if len(sys.argv) > 1:
        ac.OUT = Path(sys.argv[1])
    shutil.rmtree(ac.OUT, ignore_errors=True)
    ac.OUT.mkdir(parents=True)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    for make in (
        make_llama_folder,
        make_qwen_folders,
        make_gemma_folder,
        make_phi3_folder,
        *arch_gguf_cases.MAKERS,
        *arch_zerope_cases.MAKERS,
    ):
        make()


if __name__ == "__main__":
    main()
