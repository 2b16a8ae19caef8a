#!/usr/bin/env python3
"""make_train_witness.py: what a step of training comes to, by PyTorch in float64 with autograd.

Usage: make_train_witness.py [OUT | --f32]     (needs torch, gguf, numpy)
OUT: tests/data/train unless given.
--f32 writes nothing: how far the ten steps stand from the files' if torch computes in f32.

Reads small models of tests/data/arch/gguf and writes one JSON file for each case: model, batch,
gates; hidden rows, losses, gradients at some places of every tensor, ten steps of torch's AdamW.
tests/grad/test_grad_witness.c computes the same. witness_model.py has the decoder; before a case
counts, the decoder must give the logits that tests/data/arch has from elsewhere.

Rules that the test must follow
- Places are those of training's layout: rows of q and k, their biases and gains by original pair
  (pair i of a head in rows 2i, 2i + 1), flat, rows first. Norms of gradients know no order.
- A tensor's values are the file's times `times` (exact in f32): with the files' small values
  nothing would leave the linear part of any function.
- The teacher is the student without the case's gates, value i of each tensor times
  1 + ((7919 i) mod 61 - 30) / 128. attn_head_scale stays the file's, everywhere and always.
- CE and KL are sums over the rows that have a target, times their weight. What has a gradient is
  (ce_weight CE + kl_weight KL) / sum of weights.
- A step clips the norm of all gradients to clip_norm; decay acts on tensors of which `decays` is
  true. ce[i], kl[i] stand before step i, each divided by the sum of weights; the last behind all.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

import witness_file
import witness_model
from witness_model import Batch, forward, gates_of

DATA = Path(__file__).resolve().parent.parent / "tests/data"
CASES = {  # file: (model, gates)
    "llama-yarn": ("gguf-llama-yarn", None),
    "llama-yarn-mix": ("gguf-llama-yarn", "mix"),
    "llama-yarn-open": ("gguf-llama-yarn", "open"),
    "granite": ("gguf-granite", None),
    "gemma3": ("gguf-gemma3", None),
    "qwen2": ("gguf-qwen2", None),
    "qwen3-mix": ("gguf-qwen3", "mix"),
    "local": ("zerope-local", None),
    "mixed": ("zerope-mixed", None),
    "mixed-mix": ("zerope-mixed", "mix"),
    "mlp": ("zerope-mlp", None),
    "partial": ("zerope-partial", None),
    "scaled": ("zerope-scaled", None),
    "t5": ("zerope-t5", None),
    "zerope-gemma3": ("zerope-gemma3", None),
}
DOCUMENTS = [[43, 5], [1, 17, 22, 8]]  # tokens; beyond every window and the last bucket of T5
N, VOCAB, PLACES, HIDDEN_ROWS, STEPS = 48, 272, 16, 24, 10
CE_WEIGHT, KL_WEIGHT = 0.75, 0.5
DECAY, BETAS, EPS = 0.1, (0.9, 0.95), 1e-8
# (rate, clip norm) of the steps: norms on both sides of the limit; slower where torch's own f32
# strays too far for a test (gemma3 at 1e-2: 1.2e-3 of the norm, 8e-5 of CE).
STEP = (1e-2, 1.0)
STEPS_OF = {"gguf-granite": (1e-2, 0.11), "gguf-gemma3": (1e-3, 9.0), "zerope-gemma3": (1e-3, 9.0)}


# ---------------------------------------------------------------- inputs
def make_batch():
    rng = np.random.default_rng(48)
    ids = rng.integers(3, VOCAB, (len(DOCUMENTS), N)).tolist()
    start = [np.repeat(np.cumsum([0] + d[:-1]), d).tolist() for d in DOCUMENTS]
    targets = [
        [row[i + 1] if i + 1 < N and s[i + 1] == s[i] and i % 9 != 4 else -1 for i in range(N)]
        for row, s in zip(ids, start)
    ]
    weight = [[(1.0, 0.5, 0.75)[i % 3] for i in range(N)] for _ in DOCUMENTS]
    return {"ids": ids, "start": start, "targets": targets, "weight": weight}


def times_of(name):
    small = name.endswith("_norm.weight") or ".pos_" in name or "scale" in name
    return 1.0 if small or "attn_q" in name or "attn_k" in name else 8.0


def teacher_of(w):
    """attn_head_scale is nobody's to train or to change."""
    i = torch.arange(max(x.numel() for x in w.values()))
    factor = 1.0 + ((7919 * i) % 61 - 30).double() / 128
    moved = {name: x * factor[: x.numel()].reshape(x.shape) for name, x in w.items()}
    return moved | {name: x for name, x in w.items() if "attn_head_scale" in name}


def decays(name, x):
    return x.dim() > 1 and "_norm." not in name


def case_gates(spec, kind):
    """(gates by pair, gates of biases), or the file's."""
    of_file = gates_of(spec)
    if kind is None:
        return of_file, torch.ones(spec.n_layer, spec.n_head, dtype=torch.float64)
    i, k = torch.arange(of_file.numel()), torch.arange(spec.n_layer * spec.n_head)
    gates = (29 * i + 7) % 64 / 64 if kind == "mix" else (29 * i + 7) % 64 // 32
    bias = 0.5 + (13 * k + 5) % 32 / 32
    return gates.double().reshape(of_file.shape), bias.double().reshape(-1, spec.n_head)


# ---------------------------------------------------------------- arithmetic
def check_decoder(name, spec, tensors):
    """The logits that others have computed of this file, from the same decoder."""
    arch = json.loads((DATA / f"arch/{name}.json").read_text())
    w = {k: torch.from_numpy(x) for k, x in tensors.items()}
    batch = Batch([arch["ids"]], [[0] * len(arch["ids"])])
    logits = forward(spec, w, batch, gates_of(spec)) @ w["token_embd.weight"].T
    want = torch.tensor(arch["logits"], dtype=torch.float64)
    off = float((logits[0, arch["rows"]] - want).abs().max() / want.abs().max())
    assert off < 2e-9, (name, off)


class Case:
    def __init__(self, model, kind):
        self.spec, tensors = witness_file.read(DATA / f"arch/gguf/{model}.gguf")
        check_decoder(model, self.spec, tensors)
        self.inputs, self.kind = make_batch(), kind
        self.batch = Batch(self.inputs["ids"], self.inputs["start"])
        self.targets = torch.tensor(self.inputs["targets"])
        counts = self.targets >= 0
        self.weight = torch.tensor(self.inputs["weight"], dtype=torch.float64) * counts
        self.w = {k: torch.from_numpy(x) * times_of(k) for k, x in tensors.items()}
        self.gates, self.bias_gates = case_gates(self.spec, kind)
        teacher = teacher_of(self.w)
        rows = forward(self.spec, teacher, self.batch, gates_of(self.spec))
        self.teacher = rows @ teacher["token_embd.weight"].T
        for name, x in self.w.items():
            x.requires_grad_("attn_head_scale" not in name)

    def to_f32(self):
        """After the teacher's logits: those stay right but for their rounding."""
        witness_model.REAL = real = torch.float32
        self.w = {k: x.detach().to(real).requires_grad_(x.requires_grad) for k, x in self.w.items()}
        for name in ("weight", "gates", "bias_gates", "teacher"):
            setattr(self, name, getattr(self, name).to(real))

    def hidden(self):
        return forward(self.spec, self.w, self.batch, self.gates, self.bias_gates)

    def losses(self, hidden):
        """CE, KL and the logits; sums over rows, weighted."""
        logits = hidden @ self.w["token_embd.weight"].T
        q, p = torch.log_softmax(logits, -1), torch.log_softmax(self.teacher, -1)
        ce = -q.gather(-1, self.targets.clamp(min=0)[..., None])[..., 0]
        kl = (p.exp() * (p - q)).sum(-1)
        return (self.weight * ce).sum(), (self.weight * kl).sum(), logits

    def loss(self):
        ce, kl, _ = self.losses(self.hidden())
        total = self.weight.sum()
        return ce / total, kl / total

    def same_top(self, logits):
        counts, tops = self.weight > 0, []
        for x in (logits, self.teacher):
            most = x[counts].topk(2, -1)
            assert (most.values[:, 0] - most.values[:, 1]).min() > 2e-5  # no ties in f32
            tops.append(most.indices[:, 0])
        return int((tops[0] == tops[1]).sum())


def places(n):
    """Fixed places of an array, ascending."""
    return sorted(np.random.default_rng(n).permutation(n)[:PLACES].tolist())


def numbers(x):
    return [float(f"{v:.9g}") for v in x.detach().flatten().tolist()]


def describe_gradients(c):
    out = []
    for name, x in c.w.items():
        if x.grad is None:
            continue
        at = places(x.numel())
        out.append(
            {
                "name": name,
                "times": times_of(name),
                "decays": decays(name, x),
                "norm": numbers(x.grad.norm())[0],
                "at": at,
                "grad": numbers(x.grad.flatten()[at]),
            }
        )
    return out


def describe_gates(c):
    if c.kind is None:
        return None
    out = {"kind": c.kind, "values": numbers(c.gates), "bias": numbers(c.bias_gates)}
    if c.kind == "mix":
        out["dvalues"] = numbers(c.gates.grad)
    has_bias = any(".pos_" in name for name in c.w)
    out["dbias"] = numbers(c.bias_gates.grad if has_bias else torch.zeros_like(c.bias_gates))
    return out


def gradients(c):
    """Hidden rows, losses, and gradients of the mean loss of everything."""
    for x in (c.gates, c.bias_gates):
        x.requires_grad_(c.kind is not None)
    hidden = c.hidden()
    ce, kl, logits = c.losses(hidden)
    ((CE_WEIGHT * ce + KL_WEIGHT * kl) / c.weight.sum()).backward()
    flat, n = hidden.flatten(0, 1), len(DOCUMENTS) * N
    rows = [(i * (n - 1)) // (HIDDEN_ROWS - 1) for i in range(HIDDEN_ROWS)]
    return {
        "hidden_rows": rows,
        "hidden": [numbers(flat[i]) for i in rows],
        "sums": {
            "ce": numbers(ce)[0],
            "kl": numbers(kl)[0],
            "weight": float(c.weight.sum()),
            "n_rows": int((c.weight > 0).sum()),
            "same_top": c.same_top(logits),
        },
        "gates": describe_gates(c),
        "tensors": describe_gradients(c),
    }


def steps(c, rate, clip):
    for x in (c.gates, c.bias_gates):
        x.requires_grad_(False)
    trained = {k: x for k, x in c.w.items() if x.requires_grad}
    groups = [
        {"params": [x for k, x in trained.items() if decays(k, x) == which], "weight_decay": decay}
        for which, decay in ((True, DECAY), (False, 0.0))
    ]
    adam = torch.optim.AdamW(groups, lr=rate, betas=BETAS, eps=EPS)
    ce, kl, norm = [], [], []
    for i in range(STEPS + 1):
        adam.zero_grad()
        both = c.loss()
        ce.append(both[0])
        kl.append(both[1])
        if i == STEPS:
            break
        (CE_WEIGHT * both[0] + KL_WEIGHT * both[1]).backward()
        norm.append(torch.nn.utils.clip_grad_norm_(list(trained.values()), clip))
        adam.step()
    assert min(norm) < clip < max(norm), (clip, norm)
    series = {k: numbers(torch.stack(v)) for k, v in (("ce", ce), ("kl", kl), ("grad_norm", norm))}
    return {
        "rate": rate, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS,
        "weight_decay": DECAY, "clip_norm": clip, **series,
    }  # fmt: skip


# ---------------------------------------------------------------- files
def text_of(doc):
    """JSON with a line for each member, and for each item of a list of objects or lists."""
    lines = []
    for key, value in doc.items():
        if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
            items = ",\n  ".join(json.dumps(x, separators=(",", ":")) for x in value)
            lines.append(f' "{key}": [\n  {items}\n ]')
        else:
            lines.append(f' "{key}": ' + json.dumps(value, separators=(",", ":")))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def compare_f32():
    """Each series' largest distance, as a share."""
    for name, (model, kind) in CASES.items():
        witness_model.REAL = torch.float64
        c = Case(model, kind)
        c.to_f32()
        got = steps(c, *STEPS_OF.get(model, STEP))
        want = json.loads((DATA / f"train/{name}.json").read_text())["steps"]
        off = {k: np.abs(np.divide(got[k], want[k]) - 1).max() for k in ("ce", "kl", "grad_norm")}
        print(f"{name:16s} " + "  ".join(f"{k} {v:.1e}" for k, v in off.items()))


def main():
    if sys.argv[1:] == ["--f32"]:
        return compare_f32()
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "train"
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    made = f"torch {torch.__version__.split('+')[0]} in float64, numpy {np.__version__}"
    for name, (model, kind) in CASES.items():
        c = Case(model, kind)
        doc = {"model": model, "made_with": f"{made}, gguf {version('gguf')}", **c.inputs}
        doc |= {"ce_weight": CE_WEIGHT, "kl_weight": KL_WEIGHT}
        doc |= gradients(c)
        doc["steps"] = steps(c, *STEPS_OF.get(model, STEP))
        (out / f"{name}.json").write_text(text_of(doc))
        s = doc["steps"]
        print(f"{name:16s} CE {s['ce'][0]:.4f} -> {s['ce'][-1]:.4f}  KL {s['kl'][0]:.4f} ->"
              f" {s['kl'][-1]:.4f}  norm {s['grad_norm'][0]:.3f} -> {s['grad_norm'][-1]:.3f}")


if __name__ == "__main__":
    main()
