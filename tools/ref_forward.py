"""ref_forward.py: a decoder in plain numpy float64, to be read beside the formulas.

Owns: the meaning of every position feature the engine has, in one place and in double precision.
Uses no torch and shares no code with the engine. make_arch_models.py checks it against transformers
on each architecture that transformers has, and takes its word for the rest (biases, local heads,
length scale, per-head open pairs).

Conventions
- Weights are a dict under Hugging Face llama names, matrices (out, in), rotation pairs in halves:
  pair j of a head is channels (j, j + n_rot/2).
- Query i sees key j when j <= i and (window == 0 or i - j < window). A head of reach W with s sinks
  sees j when j <= i and (i - j < W or j < s).
- logit = q.k * attn_scale * head_scale[h] * (1 + c ln(max(1, n / len))) + bias_h(i - j), n the
  number of keys that this query of this head sees, itself included. The scales act on q.k, not on
  the bias.
- T5: buckets for distance d: d below buckets/2, then buckets/2 + floor(ln(d / (buckets/2)) /
  ln(max / (buckets/2)) * buckets/2), at most buckets - 1.
- MLP bias: w1 gelu(w0 ln(1 + d) + b0) + b1, gelu with erf.
- Position gate: q at position p of head h times exp(w_h . phi(p)), phi_i(p) =
  sigmoid(log2(1 + p) - 2 (i + 1)), i = 0..7.
- Structure head: of the embedding output x of a key's token u = x / sqrt(mean(x^2) + eps), the
  eight detectors p = sigmoid(g . u) sigmoid(W u), and the logit of head h gets B_h . p.
"""

import math
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Rope:
    """Angles of one layer; len(inv_freq) pairs are rotated, the rest of the head is not."""

    inv_freq: np.ndarray  # (n_rot / 2)
    magnitude: float = 1.0  # yarn's factor on cos and sin


@dataclass
class Spec:
    n_layer: int
    d_model: int
    n_head: int
    n_kv: int
    d_head: int
    eps: float = 1e-5
    rope: list = field(default_factory=list)  # per layer Rope or None
    open_pairs: list = None  # per layer, per kv head: pair numbers still rotated (None: all)
    window: list = None  # per layer, 0 = none
    head_window: list = None  # per layer, per kv head, 0 = none
    sinks: int = 0
    bias: list = None  # per layer None or function(distances) -> (n_head, n) float64
    bias_gate: np.ndarray = None  # (n_layer, n_head)
    scale_c: np.ndarray = None  # (n_layer)
    scale_len: int = 0
    head_scale: np.ndarray = None  # (n_layer, n_head)
    pos_gate: list = None  # per layer None or (n_head, 8)
    struct_head: tuple = None  # (W (8, d_model), g (d_model))
    struct_bias: list = None  # per layer None or (n_head, 8)
    attn_scale: float = None  # default 1 / sqrt(d_head)
    embed_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0  # logits are multiplied by this
    norm_plus_one: bool = False  # gain is 1 + w
    sandwich: bool = False  # gemma: norms after attention and after the FFN too
    act: str = "silu"
    attn_softcap: float = 0.0
    final_softcap: float = 0.0


# ---------------------------------------------------------------- angles
def inv_freq_default(theta, n_rot):
    return theta ** (-np.arange(0, n_rot, 2, dtype=np.float64) / n_rot)


def rope_default(theta, n_rot):
    return Rope(inv_freq_default(theta, n_rot))


def rope_linear(theta, n_rot, factor):
    return Rope(inv_freq_default(theta, n_rot) / factor)


def rope_dynamic(theta, n_rot, factor, n_train, n):
    """NTK by length: theta grows once the sequence is longer than the trained length."""
    n = max(n, n_train)
    theta *= ((factor * n / n_train) - (factor - 1)) ** (n_rot / (n_rot - 2))
    return Rope(inv_freq_default(theta, n_rot))


def rope_llama3(theta, n_rot, factor, low, high, n_orig):
    f = inv_freq_default(theta, n_rot)
    turns = n_orig * f / (2 * math.pi)  # whole turns within the original length
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return Rope((1 - smooth) * f / factor + smooth * f)


def rope_yarn(theta, n_rot, factor, n_orig, beta_fast=32.0, beta_slow=1.0, magnitude=None):
    f = inv_freq_default(theta, n_rot)

    def pair_of(turns):
        return n_rot * math.log(n_orig / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair_of(beta_fast)), 0)
    high = min(math.ceil(pair_of(beta_slow)), n_rot - 1)
    high = high + 0.001 if low == high else high
    ramp = np.clip((np.arange(n_rot // 2) - low) / (high - low), 0.0, 1.0)
    if magnitude is None:
        magnitude = 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
    return Rope(f * (1 - ramp) + f / factor * ramp, magnitude)


# ---------------------------------------------------------------- biases
def bias_alibi(slope):
    return lambda d: -np.outer(slope, d)


def t5_bucket(d, buckets, d_max):
    half = buckets // 2
    d = np.asarray(d, dtype=np.int64)
    far = half + (
        np.log(np.maximum(d, 1) / half) / math.log(d_max / half) * (buckets - half)
    ).astype(int)
    return np.where(d < half, d, np.minimum(far, buckets - 1))


def bias_t5(table, d_max):  # table (n_head, buckets)
    return lambda d: table[:, t5_bucket(d, table.shape[1], d_max)]


def gelu_erf(x):
    return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


def gelu_tanh(x):
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1.0 + np.exp(-x))


def bias_mlp(w0, b0, w1, b1):  # (32, 1) (32) (n_head, 32) (n_head)
    def f(d):
        hidden = gelu_erf(np.log1p(np.asarray(d, dtype=np.float64))[:, None] @ w0.T + b0)
        return (hidden @ w1.T + b1).T

    return f


# ---------------------------------------------------------------- gate and structure head
def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def gate_features(n):  # (n, 8)
    octave = np.log2(1.0 + np.arange(n))
    return sigmoid(octave[:, None] - 2.0 * np.arange(1, 9))


def detectors(spec, x):  # (n, d_model) -> (n, 8)
    w, g = (np.asarray(a, dtype=np.float64) for a in spec.struct_head)
    u = x / np.sqrt((x * x).mean(-1, keepdims=True) + spec.eps)
    return sigmoid(u @ g)[:, None] * sigmoid(u @ w.T)


# ---------------------------------------------------------------- layers
def rms_norm(x, w, eps, plus_one=False):
    gain = 1.0 + w if plus_one else w
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def rotate(x, rope, open_pairs):
    """x (n, heads, d_head); open_pairs: per head list of pairs, or None for all."""
    pairs = len(rope.inv_freq)
    angle = np.arange(x.shape[0])[:, None] * rope.inv_freq
    cos = np.broadcast_to(
        (np.cos(angle) * rope.magnitude)[:, None], (x.shape[0], x.shape[1], pairs)
    ).copy()
    sin = np.broadcast_to((np.sin(angle) * rope.magnitude)[:, None], cos.shape).copy()
    if open_pairs is not None:
        for h, chosen in enumerate(open_pairs):
            shut = np.setdiff1d(np.arange(pairs), np.asarray(chosen, dtype=int))
            cos[:, h, shut], sin[:, h, shut] = 1.0, 0.0
    a, b, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def visible(spec, layer, kv, n):
    """(n, n) booleans: may query i of this KV head see key j."""
    d = np.arange(n)[:, None] - np.arange(n)[None, :]
    ok = d >= 0
    if spec.window and spec.window[layer]:
        ok &= d < spec.window[layer]
    if spec.head_window is not None and spec.head_window[layer][kv]:
        ok &= (d < spec.head_window[layer][kv]) | (np.arange(n)[None, :] < spec.sinks)
    return ok


def attention(spec, layer, q, k, v, found):
    """q (n, n_head, d_head), k and v (n, n_kv, d_head), found: detectors or None
    -> (n, n_head * d_head)."""
    n, group = q.shape[0], spec.n_head // spec.n_kv
    base = spec.attn_scale if spec.attn_scale is not None else spec.d_head**-0.5
    distance = np.maximum(np.arange(n)[:, None] - np.arange(n)[None, :], 0)
    out = np.empty_like(q)
    for h in range(spec.n_head):
        kv = h // group
        ok = visible(spec, layer, kv, n)
        scale = np.full(n, base)
        if spec.head_scale is not None:
            scale = scale * spec.head_scale[layer][h]
        if spec.scale_c is not None and spec.scale_c[layer] != 0:
            seen = ok.sum(1)
            scale = scale * (
                1 + spec.scale_c[layer] * np.log(np.maximum(1.0, seen / spec.scale_len))
            )
        if spec.pos_gate is not None and spec.pos_gate[layer] is not None:
            scale = scale * np.exp(gate_features(n) @ spec.pos_gate[layer][h])
        s = (q[:, h] @ k[:, kv].T) * scale[:, None]
        if spec.attn_softcap:
            s = spec.attn_softcap * np.tanh(s / spec.attn_softcap)
        if spec.bias is not None and spec.bias[layer] is not None:
            gate = 1.0 if spec.bias_gate is None else spec.bias_gate[layer][h]
            s = s + gate * spec.bias[layer](np.arange(n))[h][distance]
        if found is not None and spec.struct_bias[layer] is not None:
            s = s + found @ spec.struct_bias[layer][h]
        s = np.where(ok, s, -np.inf)
        p = np.exp(s - s.max(1, keepdims=True))
        out[:, h] = (p / p.sum(1, keepdims=True)) @ v[:, kv]
    return out.reshape(n, -1)


def block(spec, layer, w, x, found=None):
    def name(s):
        return w[f"model.layers.{layer}.{s}"]

    def has(s):
        return f"model.layers.{layer}.{s}" in w

    def linear(s, y):
        y = y @ name(s + ".weight").T
        return y + name(s + ".bias") if has(s + ".bias") else y

    def norm(s, y):
        return rms_norm(y, name(s + ".weight"), spec.eps, spec.norm_plus_one)

    n = x.shape[0]
    h = norm("input_layernorm", x)
    q = linear("self_attn.q_proj", h).reshape(n, spec.n_head, spec.d_head)
    k = linear("self_attn.k_proj", h).reshape(n, spec.n_kv, spec.d_head)
    v = linear("self_attn.v_proj", h).reshape(n, spec.n_kv, spec.d_head)
    if has("self_attn.q_norm.weight"):
        q, k = norm("self_attn.q_norm", q), norm("self_attn.k_norm", k)
    if spec.rope[layer] is not None:
        chosen = None if spec.open_pairs is None else spec.open_pairs[layer]
        of_q = (
            None
            if chosen is None
            else [chosen[i * spec.n_kv // spec.n_head] for i in range(spec.n_head)]
        )
        q, k = rotate(q, spec.rope[layer], of_q), rotate(k, spec.rope[layer], chosen)
    a = linear("self_attn.o_proj", attention(spec, layer, q, k, v, found))
    x = x + spec.residual_scale * (norm("post_attention_layernorm", a) if spec.sandwich else a)

    h = norm("pre_feedforward_layernorm" if spec.sandwich else "post_attention_layernorm", x)
    act = silu if spec.act == "silu" else gelu_tanh
    f = linear("mlp.down_proj", act(linear("mlp.gate_proj", h)) * linear("mlp.up_proj", h))
    return x + spec.residual_scale * (norm("post_feedforward_layernorm", f) if spec.sandwich else f)


def as_float64(weights):
    return {k: np.asarray(v, dtype=np.float64) for k, v in weights.items()}


def hidden(spec, w, ids):
    """rows behind the final norm (n, d_model); weights in float64."""
    x = w["model.embed_tokens.weight"][np.asarray(ids)] * spec.embed_scale
    found = detectors(spec, x) if spec.struct_head is not None else None
    for layer in range(spec.n_layer):
        x = block(spec, layer, w, x, found)
    return rms_norm(x, w["model.norm.weight"], spec.eps, spec.norm_plus_one)


def forward(spec, weights, ids):
    """logits (n, n_vocab) in float64; weights are cast up once."""
    w = as_float64(weights)
    x = hidden(spec, w, ids)
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    logits = x @ head.T * spec.logit_scale
    return (
        spec.final_softcap * np.tanh(logits / spec.final_softcap) if spec.final_softcap else logits
    )


def log_softmax(z):
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def kl(p_logits, q_logits):
    """KL(p || q) per row."""
    p, q = log_softmax(p_logits), log_softmax(q_logits)
    return (np.exp(p) * (p - q)).sum(-1)
