"""witness_model.py: ref_forward.py's decoder in torch float64, for autograd, with what training
adds: rows of several documents, and gates between 0 and 1.

Conventions
- Weights are a dict under the file's names, rows of q and k by original pair (witness_file.py).
- A row's position counts from the beginning of its document, and it sees its own document only.
- Score mix: logit = scale * sum over pairs of g q.R k + (1 - g) q.k, R the rotation by the
  distance; channels without an angle count once. g is 0 or 1 where a pair is closed or open.
"""

import math

import torch

import ref_forward as rf

REAL = torch.float64  # what everything is computed in; float32 for a comparison


class Batch:
    """Rows of documents side by side; start: where in the row each token's document begins."""

    def __init__(self, ids, start):
        self.ids, self.start = torch.tensor(ids), torch.tensor(start)
        self.position = torch.arange(self.ids.shape[1])[None, :] - self.start
        before = self.position[:, :, None] - self.position[:, None, :]
        same = self.start[:, :, None] == self.start[:, None, :]
        self.distance = before.clamp(min=0)  # (rows, query, key)
        self.causal = same & (before >= 0)


def gates_of(spec):
    """(n_layer, n_kv, n_pair) 0 or 1, as the file has them."""
    g = torch.zeros(spec.n_layer, spec.n_kv, len(spec.rope[0].inv_freq), dtype=REAL)
    for layer, heads in enumerate(spec.open_pairs):
        for kv, pairs in enumerate(heads):
            g[layer, kv, pairs] = 1.0
    return g


# ---------------------------------------------------------------- positions
def turned(x, angle):
    """x (rows, n, heads, d_head), angle (rows, n, n_pair); channels past the pairs stay."""
    n = 2 * angle.shape[-1]
    cos, sin = torch.cos(angle)[:, :, None], torch.sin(angle)[:, :, None]
    a, b = x[..., 0:n:2], x[..., 1:n:2]
    pairs = torch.stack([a * cos - b * sin, b * cos + a * sin], -1)
    return torch.cat([pairs.flatten(-2), x[..., n:]], -1)


def mixed_scores(spec, layer, batch, gates, q, k):
    """q.k (rows, heads, query, key), each pair turned as far as its gate says."""
    inv_freq = torch.from_numpy(spec.rope[layer].inv_freq)
    angle = (batch.position[..., None].double() * inv_freq).to(REAL)
    group, rest = spec.n_head // spec.n_kv, spec.d_head - 2 * len(inv_freq)
    g = gates[layer].repeat_interleave(2, -1)  # by channel
    g = torch.cat([g, torch.ones(spec.n_kv, rest, dtype=g.dtype)], -1).repeat_interleave(group, 0)
    k = k.repeat_interleave(group, 2)
    product = "bihc,bjhc->bhij"
    turn = torch.einsum(product, g * turned(q, angle), turned(k, angle))
    return turn + torch.einsum(product, (1 - g) * q, k)


def bias_values(spec, w, layer, n):
    """(n_head, n) by distance, or None."""
    d = torch.arange(n, dtype=REAL)
    part = f"blk.{layer}.pos_"
    if part + "alibi.slope" in w:
        return -w[part + "alibi.slope"][:, None] * d
    if part + "t5.weight" in w:
        table = w[part + "t5.weight"]
        return table[:, rf.t5_bucket(range(n), table.shape[1], spec.t5_max)]
    if part + "mlp.0.weight" not in w:
        return None
    z = torch.log1p(d)[:, None] @ w[part + "mlp.0.weight"].T + w[part + "mlp.0.bias"]
    hidden = 0.5 * z * (1 + torch.erf(z / math.sqrt(2.0)))
    return (hidden @ w[part + "mlp.1.weight"].T + w[part + "mlp.1.bias"]).T


def visible(spec, layer, batch):
    """(rows, n_kv, query, key) booleans."""
    ok = batch.causal
    if spec.window[layer]:
        ok = ok & (batch.distance < spec.window[layer])
    heads = []
    for kv in range(spec.n_kv):
        reach = 0 if spec.head_window is None else spec.head_window[layer][kv]
        near = batch.distance < reach if reach else batch.causal
        heads.append(ok & (near | (batch.position[:, None, :] < spec.sinks)))
    return torch.stack(heads, 1)


def row_scale(spec, layer, ok):
    """(rows, n_kv, query, 1): what the scores of a query are multiplied with."""
    seen = ok.sum(-1, keepdim=True).to(REAL)
    if spec.scale_c is None or not spec.scale_c[layer]:
        return torch.full_like(seen, spec.attn_scale)
    growth = torch.log((seen / spec.scale_len).clamp(min=1.0))
    return spec.attn_scale * (1 + spec.scale_c[layer] * growth)


# ---------------------------------------------------------------- layers
def rms_norm(spec, x, gain):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + spec.eps) * gain


def attention(spec, w, layer, batch, gates, bias_gates, q, k, v):
    """q (rows, n, n_head, d_head), k and v with n_kv -> (rows, n, n_head * d_head)."""
    group = spec.n_head // spec.n_kv
    ok = visible(spec, layer, batch)
    s = mixed_scores(spec, layer, batch, gates, q, k)
    s = s * row_scale(spec, layer, ok).repeat_interleave(group, 1)
    name = f"blk.{layer}.attn_head_scale"
    if name in w:
        s = s * w[name][:, None, None]
    bias = bias_values(spec, w, layer, batch.ids.shape[1])
    if bias is not None:
        s = s + (bias_gates[layer][:, None] * bias)[:, batch.distance].transpose(0, 1)
    s = s.masked_fill(~ok.repeat_interleave(group, 1), -math.inf)
    p = torch.softmax(s, -1)
    return torch.einsum("bhij,bjhc->bihc", p, v.repeat_interleave(group, 2)).flatten(-2)


def block(spec, w, layer, batch, gates, bias_gates, x):
    def linear(part, y):
        y = y @ w[f"blk.{layer}.{part}.weight"].T
        bias = w.get(f"blk.{layer}.{part}.bias")
        return y if bias is None else y + bias

    def norm(part, y):  # where the model has it
        gain = w.get(f"blk.{layer}.{part}.weight")
        if gain is None:
            return y
        return rms_norm(spec, y, gain if y.dim() == 3 else gain.reshape(-1, spec.d_head))

    h = norm("attn_norm", x)
    q = norm("attn_q_norm", linear("attn_q", h).unflatten(-1, (spec.n_head, spec.d_head)))
    k = norm("attn_k_norm", linear("attn_k", h).unflatten(-1, (spec.n_kv, spec.d_head)))
    v = linear("attn_v", h).unflatten(-1, (spec.n_kv, spec.d_head))
    a = attention(spec, w, layer, batch, gates, bias_gates, q, k, v)
    x = x + spec.residual_scale * norm("post_attention_norm", linear("attn_output", a))
    h, gate = norm("ffn_norm", x), torch.nn.functional.silu
    if spec.act == "gelu":
        gate = lambda y: torch.nn.functional.gelu(y, approximate="tanh")
    f = linear("ffn_down", gate(linear("ffn_gate", h)) * linear("ffn_up", h))
    return x + spec.residual_scale * norm("post_ffw_norm", f)


def forward(spec, w, batch, gates, bias_gates=None):
    """(rows, n, d_model): what the output matrix multiplies, the scale of logits included.
    bias_gates (n_layer, n_head): times the file's."""
    of_file = spec.bias_gate
    every = torch.ones(spec.n_layer, spec.n_head, dtype=REAL)
    every = every if of_file is None else torch.from_numpy(of_file).to(REAL)
    every = every if bias_gates is None else every * bias_gates
    x = w["token_embd.weight"][batch.ids] * spec.embed_scale
    for layer in range(spec.n_layer):
        x = block(spec, w, layer, batch, gates, every, x)
    return rms_norm(spec, x, w["output_norm.weight"]) * spec.logit_scale
