#!/usr/bin/env python3
"""make_closed_logits.py: log-probabilities of the real models with part of their rotation closed.

Usage: make_closed_logits.py MODELS_DIR [OUT.json]       (needs gguf and numpy; 6 GB, some minutes)
MODELS_DIR holds smollm2-135m-instruct-q4_1.gguf and gemma3-270m-q4_k_m.gguf; token ids come from
tests/data/logits.json. Writes tests/data/logits_closed.json.

{model: [case]}, case = {name, closing, closed_pairs, ids, mean_nll, top20 of the last position}:
`closed_pairs[l]` = [first, last] is the inclusive range of pair numbers whose rotation is the
identity in layer l, all heads alike ([] = none). Weights are de-quantised, arithmetic and angles
float64 (ref_forward.py). The `open` cases are the control: they must meet logits.json's own f32
figures, which transformers made: |d ln p| <= 1e-4 in the top 20 (seen 1.2e-5), else the run stops.
"""

import json
import sys
from pathlib import Path

import numpy as np

import real_model
import ref_forward as rf

DATA = Path(__file__).resolve().parent.parent / "tests/data"
FILES = {"smollm2": "smollm2-135m-instruct-q4_1.gguf", "gemma3": "gemma3-270m-q4_k_m.gguf"}


def closings(n_layer, pairs):
    third = n_layer // 3
    return {
        "open": [[]] * n_layer,
        "all": [[0, pairs - 1]] * n_layer,
        "slow half": [[pairs // 2, pairs - 1]] * n_layer,
        "by layer": [[]] * third + [[pairs // 4, pairs - 1]] * third
        + [[0, pairs - 1]] * (n_layer - 2 * third),
    }


def open_pairs(closed, n_kv, pairs):
    def rest(c):
        return [j for j in range(pairs) if not c or not c[0] <= j <= c[1]]

    return [[rest(c)] * n_kv for c in closed]


def measure(spec, weights, ids):
    lp = rf.log_softmax(rf.forward(spec, weights, ids))
    last = lp[-1]
    top = np.argsort(-last)[:20]
    nll = -np.mean([lp[i, ids[i + 1]] for i in range(len(ids) - 1)])
    return [[int(t), round(float(last[t]), 7)] for t in top], round(float(nll), 7)


def control(model, stored, top):
    was = dict(map(tuple, stored["f32"]["top20"]))
    worst = max(abs(p - was[t]) for t, p in top if t in was)
    print(f"{model} {stored['name']}: control differs by {worst:.1e} in ln p")
    assert worst <= 1e-4


def main():
    models = Path(sys.argv[1])
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else DATA / "logits_closed.json"
    stored = json.loads((DATA / "logits.json").read_text())
    doc = {}
    for model, file in FILES.items():
        spec, weights = real_model.load(models / file)
        weights = {k: v.astype(np.float64) for k, v in weights.items()}
        by_name = {c["name"]: c for c in stored[model]}
        doc[model] = []
        for name, n in (("short", None), ("prose500", 256)):
            ids = by_name[name]["ids"][:n]
            for closing, closed in closings(spec.n_layer, spec.d_head // 2).items():
                spec.open_pairs = open_pairs(closed, spec.n_kv, spec.d_head // 2)
                top, nll = measure(spec, weights, ids)
                if closing == "open" and n is None:
                    control(model, by_name[name], top)
                doc[model].append({"name": name, "closing": closing, "closed_pairs": closed,
                                   "ids": ids, "mean_nll": nll, "top20": top})
                print(f"{model} {name} {closing}: nll {nll}", flush=True)
    lines = []
    for model, cases in doc.items():
        rows = ",\n  ".join(json.dumps(c) for c in cases)
        lines.append(f' "{model}": [\n  {rows}\n ]')
    out.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
