"""arch_case.py: what every small reference model shares: tokenizer, random weights, truth, JSON.

Owns: save_case, which refuses a case whose truth is not confirmed twice or that is blind to what it
is about. See make_arch_models.py for the files and the meaning of their fields.
"""

import contextlib
import dataclasses
import json
from pathlib import Path

import numpy as np
import torch
import transformers

import ref_forward as rf

OUT = Path(__file__).resolve().parent.parent / "tests/data/arch"
N = 56  # tokens; windows are 16
ROWS = [17, 40, N - 1]
TOL_SENSE = 1e-3


# ---------------------------------------------------------------- tokenizer shared by all
def make_tokenizer():
    """256 byte tokens in GPT-2's alphabet, 3 specials, 13 merges: 272 entries."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    char = {b: chr(b) for b in keep}
    char.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in char)})
    merges = [
        "Ġ t",
        "h e",
        "Ġ a",
        "i n",
        "r e",
        "o n",
        "Ġt he",
        "e r",
        "Ġ s",
        "a t",
        "Ġ o",
        "e n",
        "Ġ c",
    ]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = special + [char[b] for b in range(256)] + [m.replace(" ", "") for m in merges]
    return {
        "tokens": tokens,
        "merges": merges,
        "types": [3] * 3 + [1] * (len(tokens) - 3),
        "special": special,
    }


TOK = make_tokenizer()
VOCAB = len(TOK["tokens"])


def write_tokenizer(folder):
    added = [
        {
            "id": i,
            "content": s,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i, s in enumerate(TOK["special"])
    ]
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    doc = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": dict(byte_level),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {t: i for i, t in enumerate(TOK["tokens"])},
            "merges": TOK["merges"],
        },
    }
    (folder / "tokenizer.json").write_text(
        json.dumps(doc, ensure_ascii=False, separators=(",", ":")) + "\n"
    )
    cfg = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": TOK["special"][0],
        "eos_token": TOK["special"][0],
        "model_max_length": 64,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(cfg, indent=1) + "\n")


# ---------------------------------------------------------------- weights
STORE = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def make_weights(
    seed, shape, store, *, qk_std=0.15, bias=False, qk_norm=False, gemma=False, tied=False
):
    """HF-named float32 arrays whose matrices are exactly representable in `store`."""
    rng = np.random.default_rng(seed)
    w = {}

    def put(name, size, std, mean=0.0, dtype=STORE[store]):
        x = torch.from_numpy((mean + std * rng.standard_normal(size)).astype(np.float32))
        w[name] = x.to(dtype).to(torch.float32).numpy()

    d, hd = shape["d_model"], shape["d_head"]
    gain = 0.0 if gemma else 1.0  # gemma stores gain - 1

    def norm(name, size):
        put(name + ".weight", size, 0.2, gain, torch.bfloat16)

    put("model.embed_tokens.weight", (shape["n_vocab"], d), 0.02)
    for i in range(shape["n_layer"]):
        p = f"model.layers.{i}."
        norm(p + "input_layernorm", d)
        for name, heads, std in (
            ("q", "n_head", qk_std),
            ("k", "n_kv", qk_std),
            ("v", "n_kv", 0.02),
        ):
            put(f"{p}self_attn.{name}_proj.weight", (shape[heads] * hd, d), std)
            if bias:
                put(f"{p}self_attn.{name}_proj.bias", shape[heads] * hd, 0.1)
        put(p + "self_attn.o_proj.weight", (d, shape["n_head"] * hd), 0.02)
        if qk_norm:
            norm(p + "self_attn.q_norm", hd)
            norm(p + "self_attn.k_norm", hd)
        norm(p + "post_attention_layernorm", d)
        if gemma:
            norm(p + "pre_feedforward_layernorm", d)
            norm(p + "post_feedforward_layernorm", d)
        put(p + "mlp.gate_proj.weight", (shape["d_ff"], d), 0.02)
        put(p + "mlp.up_proj.weight", (shape["d_ff"], d), 0.02)
        put(p + "mlp.down_proj.weight", (d, shape["d_ff"]), 0.02)
    norm("model.norm", d)
    if not tied:
        put("lm_head.weight", (shape["n_vocab"], d), 0.02)
    return w


def make_ids(seed):
    return [int(t) for t in np.random.default_rng(1000 + seed).integers(3, VOCAB, N)]


def fuse_phi3(weights):
    out = {}
    for name, x in weights.items():
        if ".q_proj." in name:
            k, v = name.replace("q_proj", "k_proj"), name.replace("q_proj", "v_proj")
            out[name.replace("q_proj", "qkv_proj")] = np.concatenate([x, weights[k], weights[v]])
        elif ".gate_proj." in name:
            up = weights[name.replace("gate_proj", "up_proj")]
            out[name.replace("gate_proj", "gate_up_proj")] = np.concatenate([x, up])
        elif not any(s in name for s in (".k_proj.", ".v_proj.", ".up_proj.")):
            out[name] = x
    return out


# ---------------------------------------------------------------- transformers in float64
@contextlib.contextmanager
def f64_everywhere():
    """Model code casts norms, softmax, angles to float32 by name; here that name means float64."""
    keep = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = keep[:3]
        torch.set_default_dtype(keep[3])


def hf_logits(config, weights, ids, double):
    cfg = dict(config)
    kind = cfg.pop("model_type")
    cfg.pop("architectures", None)
    cfg.pop("torch_dtype", None)
    cfg.pop("dtype", None)
    with f64_everywhere() if double else contextlib.nullcontext():
        c = transformers.AutoConfig.for_model(kind, **cfg)
        model = transformers.AutoModelForCausalLM.from_config(c, attn_implementation="eager").eval()
        dtype = torch.float64 if double else torch.float32
        state = {k: torch.from_numpy(v).to(dtype) for k, v in weights.items()}
        if c.tie_word_embeddings:
            state["lm_head.weight"] = state["model.embed_tokens.weight"]
        model.load_state_dict(state, strict=True)
        assert next(model.parameters()).dtype == dtype
        with torch.no_grad():
            return model(torch.tensor([ids]), use_cache=False).logits[0].double().numpy()


# ---------------------------------------------------------------- one case
def rel(a, b):
    return float(np.abs(a - b).max() / np.abs(b).max())


def rounded(x):
    return [[float(f"{v:.9g}") for v in row] for row in x]


def save_case(
    name, spec, weights, ids, *, source, without, config=None, hf_weights=None, n_ctx=64, about=""
):
    """without: {what: changed spec or weights-taking function}; each must move the logits."""
    ours = rf.forward(spec, weights, ids)
    check = {"ref_forward_vs_truth": None, "f32_vs_truth": None, "without": {}}
    truth, by = ours, "tools/ref_forward.py (numpy float64)"
    if config is not None:
        hf = weights if hf_weights is None else hf_weights
        truth = hf_logits(config, hf, ids, True)
        check["ref_forward_vs_truth"] = rel(ours, truth)
        check["f32_vs_truth"] = rel(hf_logits(config, hf, ids, False), truth)
        by = f"transformers {transformers.__version__} in float64, torch {torch.__version__}"
        assert check["ref_forward_vs_truth"] < 1e-10, (name, check)
        assert check["f32_vs_truth"] < 3e-5, (name, check)
    for what, other in without.items():
        moved = rf.forward(other, weights, ids) if isinstance(other, rf.Spec) else other
        check["without"][what] = float(f"{rel(moved[ROWS], truth[ROWS]):.3g}")
        assert check["without"][what] >= TOL_SENSE, (name, what, check)
    for k in ("ref_forward_vs_truth", "f32_vs_truth"):
        check[k] = None if check[k] is None else float(f"{check[k]:.1e}")
    doc = {
        "name": name,
        "about": about,
        **source,
        "n_ctx": n_ctx,
        "ids": ids,
        "rows": ROWS,
        "top": [int(t) for t in truth[ROWS].argmax(1)],
        "largest": float(f"{np.abs(truth[ROWS]).max():.9g}"),
        "made_with": by,
        "check": check,
        "logits": rounded(truth[ROWS]),
    }
    text = json.dumps(doc, indent=1)
    head, tail = text.split('"logits": ')
    rows = json.loads(tail[: tail.rindex("}")])
    body = ",\n  ".join("[" + ",".join(f"{v:.9g}" for v in r) + "]" for r in rows)
    head = head.replace(json.dumps(ids, indent=1).replace("\n", "\n "), json.dumps(ids))
    (OUT / f"{name}.json").write_text(f'{head}"logits": [\n  {body}\n ]\n}}\n')
    print(f"{name:22s} {check}")


def spec_of(shape, **more):
    s = rf.Spec(
        n_layer=shape["n_layer"],
        d_model=shape["d_model"],
        n_head=shape["n_head"],
        n_kv=shape["n_kv"],
        d_head=shape["d_head"],
        eps=shape["eps"],
    )
    s = dataclasses.replace(s, **more)
    if not isinstance(s.rope, list):
        s.rope = [s.rope] * s.n_layer
    elif not s.rope:
        s.rope = [None] * s.n_layer
    return s


def without_rope(s):
    return dataclasses.replace(s, rope=[None] * s.n_layer)


def base_config(kind, cls, shape, **more):
    return {
        "architectures": [cls],
        "model_type": kind,
        "vocab_size": shape["n_vocab"],
        "hidden_size": shape["d_model"],
        "intermediate_size": shape["d_ff"],
        "num_hidden_layers": shape["n_layer"],
        "num_attention_heads": shape["n_head"],
        "num_key_value_heads": shape["n_kv"],
        "head_dim": shape["d_head"],
        "hidden_act": "silu",
        "max_position_embeddings": 64,
        "rms_norm_eps": shape["eps"],
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": None,
        "torch_dtype": "float32",
        **more,
    }


def v5_spelling(config):
    """rope_theta, rope_scaling and torch_dtype under the names that transformers 5 writes."""
    c = dict(config)
    scaling = dict(c.pop("rope_scaling", None) or {})
    theta = c.pop("rope_theta", None)
    c["dtype"] = c.pop("torch_dtype")
    kind = scaling.pop("rope_type", None) or scaling.pop("type", "default")
    partial = c.pop("partial_rotary_factor", None)
    if c["model_type"] == "gemma3_text":
        c["rope_parameters"] = {
            "full_attention": {"rope_type": kind, "rope_theta": theta, **scaling},
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": c.pop("rope_local_base_freq"),
            },
        }
        pattern = c.pop("sliding_window_pattern")
        c["layer_types"] = [
            "sliding_attention" if (i + 1) % pattern else "full_attention"
            for i in range(c["num_hidden_layers"])
        ]
        return c
    c["rope_parameters"] = {"rope_type": kind, "rope_theta": theta, **scaling}
    if partial is not None:
        c["rope_parameters"]["partial_rotary_factor"] = partial
    return c


GEMMA = {
    "n_layer": 7,
    "d_model": 36,
    "n_head": 4,
    "n_kv": 1,
    "d_head": 18,
    "d_ff": 28,
    "n_vocab": VOCAB,
    "eps": 1e-6,
    "n_ctx": 64,
}


def gemma_spec(shape, local_theta, global_rope, attn_scale, window=16, pattern=6):
    local = rf.rope_default(local_theta, shape["d_head"])
    full = [(i + 1) % pattern == 0 for i in range(shape["n_layer"])]
    return spec_of(
        shape,
        rope=[global_rope if g else local for g in full],
        window=[0 if g else window for g in full],
        attn_scale=attn_scale,
        norm_plus_one=True,
        sandwich=True,
        act="gelu",
        embed_scale=shape["d_model"] ** 0.5,
    )


def gemma_without(s, plain_global):
    one = dataclasses.replace
    return {
        "window": one(s, window=[0] * s.n_layer),
        "pattern": one(s, window=[16] * s.n_layer),
        "global theta or scaling": one(
            s, rope=[plain_global if w == 0 else r for w, r in zip(s.window, s.rope)]
        ),
        "local theta": one(s, rope=[s.rope[5]] * s.n_layer),
        "embed_scale": one(s, embed_scale=1.0),
        "gelu": one(s, act="silu"),
        "attn_scale": one(s, attn_scale=None),
    }
