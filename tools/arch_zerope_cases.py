"""arch_zerope_cases.py: small models with our own position keys (GGUF, zerope-*), as another maker
would write them from the format's description; their truth is ref_forward.py's."""

import dataclasses

import numpy as np

import arch_case as ac
import arch_gguf as ag
import ref_forward as rf
from arch_case import GEMMA, TOK, gemma_spec, make_ids, make_weights, spec_of
from arch_case import without_rope
from arch_gguf_cases import GG, gguf_case, rope_keys


def position_keys(shape, kinds, open_pairs, put):
    """Our keys; pairs_open is left out when no head of the file has an open pair (the gguf package
    writes no empty arrays)."""
    flat = [p for layer in (open_pairs or []) for p in layer]

    def keys(k):
        k.add_uint32("zerope.format_version", 1)
        k.add_uint32("zerope.context.validated", shape["n_ctx"])
        k.add_array("zerope.position.kind", kinds)
        if flat:
            ends = np.cumsum([0] + [len(p) for p in flat])
            ag.i32_array(k, "zerope.position.pairs_open", [j for p in flat for j in p])
            ag.u32_array(k, "zerope.position.pairs_open_offset", ends)
        put(k)

    return keys


def open_first(shape, open_pairs):
    """The row order of our files: function(layer) -> channel order per KV head."""
    every = [list(range(shape["d_head"] // 2))] * shape["n_kv"]

    def orders(layer):
        chosen = every if open_pairs is None else open_pairs[layer]
        return [ag.channel_order(shape["d_head"], None, p) for p in chosen]

    return orders


def zerope_case(name, shape, seed, s, *, kinds, put=None, open_pairs=None, **more):
    """A zerope-llama file. open_pairs: [layer][kv head] -> list; None: no layer rotates."""

    def own(k):
        rope_keys(10000.0, shape["d_head"])(k)
        if put:
            put(k)

    w, ids = make_weights(seed, shape, "f16", tied=True), make_ids(seed)
    gguf_case(
        name, "zerope-llama", shape, w, ids, s, more.pop("without"), **more,
        keys=position_keys(shape, kinds, open_pairs, own), orders=open_first(shape, open_pairs),
    )  # fmt: skip


def zerope_norm_case(name, arch, shape, w, ids, s, *, kinds, put, without, about, gemma=False,
                     more=None):
    """A file whose shared q and k norm gains became one per head, in that head's row order."""
    orders = open_first(shape, s.open_pairs)
    extra = dict(more or {})
    shared = {k: v for k, v in w.items() if "q_norm" not in k and "k_norm" not in k}
    for layer in range(shape["n_layer"]):
        for part, n in (("q", shape["n_head"]), ("k", shape["n_kv"])):
            gain = w[f"model.layers.{layer}.self_attn.{part}_norm.weight"] + (1.0 if gemma else 0.0)
            rows = [gain[orders(layer)[h * shape["n_kv"] // n]] for h in range(n)]
            extra[f"blk.{layer}.attn_{part}_norm.weight"] = np.stack(rows)
    path = ac.OUT / "gguf" / f"{name}.gguf"
    keys = position_keys(shape, kinds, s.open_pairs, put)
    ag.write(
        path, arch, shape, ag.reorder_qk(shared, shape, orders), TOK, keys=keys, extra=extra,
        gemma=gemma,
    )  # fmt: skip
    ac.save_case(
        name, s, w, ids, without=without, about=about, n_ctx=shape["n_ctx"],
        source={"gguf": f"gguf/{name}.gguf"},
    )  # fmt: skip


def make_zerope_biases():
    rng = np.random.default_rng(20)
    L, H = GG["n_layer"], GG["n_head"]
    f32 = lambda x: np.asarray(x, dtype=np.float32)  # what the file holds
    slope = [f32(2.0 ** (-2.0 * np.arange(1, H + 1)) * (1 + 0.2 * i)) for i in range(L)]
    none = spec_of(GG)
    s = dataclasses.replace(none, bias=[rf.bias_alibi(x.astype(float)) for x in slope])
    zerope_case(
        "zerope-alibi",
        GG,
        21,
        s,
        kinds=["alibi"] * L,
        without={"bias": none},
        extra={f"blk.{i}.pos_alibi.slope": slope[i] for i in range(L)},
        about="bias -slope * d",
    )
    table = [f32(rng.standard_normal((H, 12))) for _ in range(L)]
    s = dataclasses.replace(none, bias=[rf.bias_t5(t.astype(float), 40) for t in table])

    def t5_keys(k):
        k.add_uint32("zerope.position.t5_buckets", 12)
        k.add_uint32("zerope.position.t5_max", 40)

    wrong = dataclasses.replace(none, bias=[rf.bias_t5(t.astype(float), 64) for t in table])
    zerope_case(
        "zerope-t5",
        GG,
        22,
        s,
        kinds=["t5"] * L,
        put=t5_keys,
        without={"bias": none, "t5_max": wrong},
        extra={f"blk.{i}.pos_t5.weight": table[i] for i in range(L)},
        about="12 buckets, last one from distance 40; n goes beyond it",
    )
    mlps = [
        [
            f32(rng.standard_normal(size) * std)
            for size, std in (((32, 1), 1.0), (32, 0.5), ((H, 32), 0.4), (H, 0.2))
        ]
        for _ in range(L)
    ]
    s = dataclasses.replace(none, bias=[rf.bias_mlp(*(x.astype(float) for x in m)) for m in mlps])
    zerope_case(
        "zerope-mlp",
        GG,
        23,
        s,
        kinds=["mlp"] * L,
        without={"bias": none},
        extra={
            f"blk.{i}.pos_mlp.{n}": x
            for i in range(L)
            for n, x in zip(("0.weight", "0.bias", "1.weight", "1.bias"), mlps[i])
        },
        about="w1 gelu(w0 ln(1 + d) + b0) + b1, gelu with erf",
    )
    make_zerope_mixed(slope[0], table[0], mlps[0])


def make_zerope_mixed(slope, table, mlp):
    shape = GG | {"n_layer": 5}
    gate = np.ones((5, 4))
    gate[0, 1] = gate[2, 0] = gate[2, 3] = gate[4, 2] = 0.0
    rope = rf.rope_default(1e4, 8)
    s = spec_of(
        shape,
        rope=[None, rope, None, None, None],
        bias_gate=gate,
        bias=[
            rf.bias_alibi(slope.astype(float)),
            None,
            rf.bias_t5(table.astype(float), 40),
            None,
            rf.bias_mlp(*(x.astype(float) for x in mlp)),
        ],
    )

    def keys(k):
        k.add_uint32("zerope.position.t5_buckets", 12)
        k.add_uint32("zerope.position.t5_max", 40)
        ag.f32_array(k, "zerope.position.bias_gate", gate.ravel())

    extra = {"blk.0.pos_alibi.slope": slope, "blk.2.pos_t5.weight": table}
    extra |= {
        f"blk.4.pos_mlp.{n}": x for n, x in zip(("0.weight", "0.bias", "1.weight", "1.bias"), mlp)
    }
    every, nothing = [[0, 1, 2, 3]] * 2, [[], []]
    zerope_case(
        "zerope-mixed",
        shape,
        24,
        s,
        kinds=["alibi", "rope", "t5", "none", "mlp"],
        put=keys,
        extra=extra,
        open_pairs=[nothing, every, nothing, nothing, nothing],
        without={"bias_gate": dataclasses.replace(s, bias_gate=None), "rotation": without_rope(s)},
        about="five kinds in one file, four biases gated off",
    )


def make_zerope_gates():
    shape = GG | {"n_layer": 3}
    rope = rf.rope_default(1e4, 8)
    every = [[0, 1, 2, 3]] * 2
    opened = [every, [[2], [0, 3]], [[], []]]
    s = spec_of(shape, rope=[rope, rope, None], open_pairs=opened)
    swapped = dataclasses.replace(s, open_pairs=[every, [[0], [0, 1]], [[], []]])
    zerope_case(
        "zerope-partial",
        shape,
        25,
        s,
        kinds=["rope", "partial", "none"],
        open_pairs=opened,
        without={"pairs": swapped, "closing": dataclasses.replace(s, open_pairs=None)},
        about="per-head open pairs, their rows first; layer 2 has none",
    )

    plain = spec_of(GG, rope=rope)
    reach = [[8, 0], [20, 12]]
    s = dataclasses.replace(plain, head_window=reach, sinks=3)

    def local_keys(k):
        ag.u32_array(k, "zerope.attention.head_window", [r for layer in reach for r in layer])
        k.add_uint32("zerope.attention.sinks", 3)

    both = [every] * 2
    zerope_case(
        "zerope-local",
        GG,
        26,
        s,
        kinds=["rope"] * 2,
        put=local_keys,
        open_pairs=both,
        without={"reach": plain, "sinks": dataclasses.replace(s, sinks=0)},
        about="a head of reach W sees i - j < W and j < sinks; rotation kept",
    )

    rng = np.random.default_rng(27)
    c = np.float32([0.15, 0.4])
    per_head = np.float32(1 + 0.3 * rng.standard_normal((2, 4)))

    def scale_keys(k):
        ag.f32_array(k, "zerope.attention.scale_c", c)
        k.add_uint32("zerope.attention.scale_len", 10)

    extra = {f"blk.{i}.attn_head_scale": per_head[i] for i in range(2)}
    s = spec_of(GG, scale_c=c.astype(float), scale_len=10, head_scale=per_head.astype(float))
    lost = {
        "scale_c": dataclasses.replace(s, scale_c=None),
        "head_scale": dataclasses.replace(s, head_scale=None),
    }
    zerope_case(
        "zerope-scaled",
        GG,
        27,
        s,
        kinds=["none"] * 2,
        put=scale_keys,
        extra=extra,
        without=lost,
        about="position-free with length scale and per-head scale on q.k",
    )
    s = dataclasses.replace(s, rope=[rope, rope], head_window=reach, sinks=3, bias=None)

    def all_keys(k):
        local_keys(k)
        scale_keys(k)

    counted = dataclasses.replace(s, scale_len=6)
    zerope_case(
        "zerope-local-scaled",
        GG,
        28,
        s,
        kinds=["rope"] * 2,
        put=all_keys,
        extra=extra,
        open_pairs=both,
        without=lost | {"scale_len": counted},
        about="n of the length scale = keys this head sees: min(reach and sinks, position)",
    )


def make_zerope_norms():
    shape = GG | {"n_layer": 3, "eps": 1e-6, "d_head": 12}
    w, ids = make_weights(31, shape, "f16", tied=True, qk_norm=True, qk_std=0.02), make_ids(31)
    rope = rf.rope_default(1e6, 12)
    every = [list(range(6))] * 2
    s = spec_of(shape, rope=[rope] * 3, open_pairs=[every, [[4, 1], [0, 1, 2, 5]], [[], []]])
    zerope_norm_case(
        "zerope-qwen3", "zerope-qwen3", shape, w, ids, s, kinds=["rope", "partial", "none"],
        put=rope_keys(1e6, 12), without={"closing": dataclasses.replace(s, open_pairs=None)},
        about="q and k norm gains per head, moved with their rows; open pairs in plan order",
    )  # fmt: skip

    shape = GEMMA | {"d_model": 32, "d_head": 10, "d_ff": 20}
    w = make_weights(32, shape, "f16", qk_norm=True, qk_std=0.02, gemma=True, tied=True)
    s = gemma_spec(shape, 10000.0, rf.rope_default(1e6, 10), None)
    opened = [[[0, 1, 2, 3, 4]], [[]], [[3]], [[0, 2]], [[]], [[1, 4]], [[0, 1, 2, 3, 4]]]
    s = dataclasses.replace(s, open_pairs=opened)

    def keys(k):
        rope_keys(1e6, 10)(k)
        k.add_sliding_window(16)

    zerope_norm_case(
        "zerope-gemma3", "zerope-gemma3", shape, w, make_ids(32), s, put=keys, gemma=True,
        kinds=["rope", "none", "partial", "partial", "none", "partial", "rope"],
        without={"closing": dataclasses.replace(s, open_pairs=None),
                 "window": dataclasses.replace(s, window=[0] * 7)},
        about="windows stay where rotation went; layer 5 uses the global theta",
    )  # fmt: skip


def detector_weights(rng, d_model, n_head, layers):
    """Detectors that tell tokens apart, and how much each head of some layers listens."""
    f32 = lambda x: np.asarray(x, dtype=np.float32)
    head = f32(rng.standard_normal((8, d_model))), f32(rng.standard_normal(d_model) * 0.5)
    bias = [f32(rng.standard_normal((n_head, 8)) * 3) if b else None for b in layers]
    extra = {"struct_head.weight": head[0], "struct_head.gate": head[1]}
    extra |= {f"blk.{i}.struct_bias": b for i, b in enumerate(bias) if b is not None}
    return head, bias, extra


def make_zerope_parts():
    """Position gates and structure heads: with rotation and local heads, with biases by distance,
    with another embedding scale."""
    rng = np.random.default_rng(40)
    shape, f32 = GG | {"n_layer": 3}, lambda x: np.asarray(x, dtype=np.float32)
    rope, every = rf.rope_default(1e4, 8), [[0, 1, 2, 3]] * 2
    gate = [f32(rng.standard_normal((4, 8)) * 0.4), None, f32(rng.standard_normal((4, 8)) * 0.4)]
    opened = [every, every, [[], []]]
    s = spec_of(shape, rope=rope, open_pairs=opened, pos_gate=gate)
    zerope_case(
        "zerope-gate", shape, 41, s, kinds=["rope", "rope", "none"], open_pairs=opened,
        extra={f"blk.{i}.pos_gate.weight": g for i, g in enumerate(gate) if g is not None},
        without={"gate": dataclasses.replace(s, pos_gate=None)},
        about="queries times exp(w . phi(position)) in layers 0 and 2",
    )  # fmt: skip

    reach = [[8, 0], [0, 0], [20, 12]]
    head, bias, extra = detector_weights(rng, 32, 4, [True, False, True])

    def keys(k):
        ag.u32_array(k, "zerope.attention.head_window", [r for layer in reach for r in layer])
        k.add_uint32("zerope.attention.sinks", 3)

    s = spec_of(shape, rope=rope, open_pairs=opened, pos_gate=gate, head_window=reach, sinks=3,
                struct_head=head, struct_bias=bias)
    zerope_case(
        "zerope-struct", shape, 42, s, kinds=["rope", "rope", "none"], open_pairs=opened, put=keys,
        extra=extra | {f"blk.{i}.pos_gate.weight": g for i, g in enumerate(gate) if g is not None},
        without={"structure head": dataclasses.replace(s, struct_head=None),
                 "gate": dataclasses.replace(s, pos_gate=None),
                 "a layer": dataclasses.replace(s, struct_bias=[bias[0], None, None])},
        about="bias by what a key's token is, in layers 0 and 2; local heads and gate beside",
    )  # fmt: skip

    head, bias, extra = detector_weights(rng, 32, 4, [True, True])
    slope = f32(2.0 ** (-2.0 * np.arange(1, 5)))
    extra |= {f"blk.{i}.pos_alibi.slope": slope for i in range(2)}
    s = spec_of(GG, bias=[rf.bias_alibi(slope.astype(float))] * 2, struct_head=head,
                struct_bias=bias)
    zerope_case(
        "zerope-alibi-struct", GG, 43, s, kinds=["alibi"] * 2, extra=extra,
        without={"structure head": dataclasses.replace(s, struct_head=None),
                 "bias": dataclasses.replace(s, bias=None)},
        about="two biases on a logit: by distance, and by what the key's token is",
    )  # fmt: skip

    w = make_weights(44, GEMMA | {"d_head": 10}, "f16", qk_norm=True, qk_std=0.02, gemma=True,
                     tied=True)
    gemma = GEMMA | {"d_head": 10}
    head, bias, extra = detector_weights(rng, gemma["d_model"], gemma["n_head"], [1] * 7)
    s = gemma_spec(gemma, 10000.0, rf.rope_default(1e6, 10), None)
    s = dataclasses.replace(s, struct_head=head, struct_bias=bias,
                            open_pairs=[[list(range(5))] * gemma["n_kv"]] * 7)

    def gemma_keys(k):
        rope_keys(1e6, 10)(k)
        k.add_sliding_window(16)

    zerope_norm_case(
        "zerope-gemma3-struct", "zerope-gemma3", gemma, w, make_ids(44), s, put=gemma_keys,
        gemma=True, kinds=["rope"] * 7, more=extra,
        without={"structure head": dataclasses.replace(s, struct_head=None)},
        about="detectors read the embedding as the layers do, scaled; windowed layers listen too",
    )  # fmt: skip


MAKERS = (make_zerope_biases, make_zerope_gates, make_zerope_norms, make_zerope_parts)
