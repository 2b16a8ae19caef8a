#!/usr/bin/env python3
"""check_export.py: do stock engines compute from an exported model what zerope computes?

Needs torch, transformers, numpy and a llama.cpp build (build tree with bin/llama-quantize and the
static libraries; build_peer.py compiles peer_logits.c against it on first use).

  check_export.py --zerope BIN --reference MODEL --llama DIR --prompts FILE [--model-key smollm2]
      [--hf FOLDER]... [--gguf FILE]... [--refused FILE]... [--name NAME] --out EVIDENCE.json

--reference   what zerope itself runs: `zerope logits MODEL --ids ... --exact --top 20 --json`
--expected    instead of --zerope and --reference: {prompt name: that command's JSON}
--prompts     tests/data/logits.json with --model-key smollm2|gemma3 (only name and ids are used), a
              case of tests/data/arch, or any [{name, ids}]; --first N cuts each prompt
--hf          folder that transformers loads in f32, eager attention
--gguf        file that llama.cpp loads; compared after `llama-quantize F32` (otherwise its int8 or
              f16 activations would be what is measured), f32 KV, flash attention off; the file as
              it is runs too, against the loose limits
--refused     file with architecture zerope-*: llama.cpp and transformers must both refuse it

Compared per prompt and engine, on the last position: KL of the top 20 plus one bucket for the rest,
largest |d ln p| over the top 20, top-1; over the prompt: mean NLL. Limits by options (defaults are
those of exact f32 paths). The evidence record holds versions, SHA-256 of every file, ids, all three
engines' figures, distances, limits, status; an existing EVIDENCE.json keeps its other names. Exit
codes: 0 all passed, 1 a check failed or an engine stopped, 2 usage.
"""

import argparse
import datetime
import hashlib
import json
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from build_peer import peer_binary


# ---------------------------------------------------------------- small things
def sha256(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            h.update(block)
    return h.hexdigest()


def hashes(path):
    path = Path(path)
    if path.is_file():
        return {path.name: sha256(path)}
    return {p.name: sha256(p) for p in sorted(path.iterdir()) if p.is_file()}


def run(cmd, **more):
    return subprocess.run([str(c) for c in cmd], capture_output=True, text=True, **more)


def must(cmd):
    r = run(cmd)
    if r.returncode:
        raise RuntimeError(
            f"{' '.join(map(str, cmd))[:200]}: exit {r.returncode}\n"
            f"{(r.stderr or r.stdout)[-2000:]}"
        )
    return r.stdout


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def figures(logits, ids, k=20):
    """top[{id, logprob}] of the last position and mean NLL of the prompt, as zerope prints them."""
    lp = log_softmax(logits)
    order = np.argsort(-lp[-1], kind="stable")[:k]
    nll = [-lp[i, t] for i, t in enumerate(ids[1:])]
    return {
        "nll_mean": float(np.mean(nll)) if nll else None,
        "top": [{"id": int(t), "logprob": round(float(lp[-1, t]), 7)} for t in order],
    }, lp[-1]


# ---------------------------------------------------------------- the three engines
def by_zerope(args, prompts):
    if args.expected:
        return json.loads(Path(args.expected).read_text())
    out = {}
    for p in prompts:
        text = must(
            [
                args.zerope,
                "logits",
                args.reference,
                "--ids",
                ",".join(map(str, p["ids"])),
                "--exact",
                "--top",
                "20",
                "--json",
            ]
        )
        out[p["name"]] = json.loads(text)
        if out[p["name"]]["n_tokens"] != len(p["ids"]):
            sys.exit(
                f"{p['name']}: gave {len(p['ids'])} ids, zerope counted "
                f"{out[p['name']]['n_tokens']}"
            )
    return out


def by_transformers(folder, prompts):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=torch.float32, attn_implementation="eager", local_files_only=True
    ).eval()
    with torch.no_grad():
        return {
            p["name"]: model(torch.tensor([p["ids"]]), use_cache=False).logits[0].numpy()
            for p in prompts
        }


def by_llama_cpp(peer, path, prompts):
    out = {}
    with tempfile.TemporaryDirectory() as tmp:
        ids, raw = Path(tmp) / "ids", Path(tmp) / "logits"
        for p in prompts:
            ids.write_text(" ".join(map(str, p["ids"])))
            n, v = map(int, must([peer, path, ids, raw]).split())
            out[p["name"]] = np.fromfile(raw, dtype=np.float32).reshape(n, v)
    return out


def to_f32(llama, path, tmp):
    out = Path(tmp) / (Path(path).stem + "-f32.gguf")
    must([llama / "bin/llama-quantize", "--allow-requantize", path, out, "F32"])
    return out


# ---------------------------------------------------------------- comparison
def compare(expected, logits, prompts, limits):
    rows = []
    for p in prompts:
        want = expected[p["name"]]
        got, lp = figures(logits[p["name"]], p["ids"])
        ids = [t["id"] for t in want["top"]]
        a, b = np.array([t["logprob"] for t in want["top"]]), lp[ids]
        rest_a, rest_b = max(1 - np.exp(a).sum(), 1e-12), max(1 - np.exp(b).sum(), 1e-12)
        kl = float((np.exp(a) * (a - b)).sum() + rest_a * np.log(rest_a / rest_b))
        row = {
            "prompt": p["name"],
            "kl": float(f"{max(kl, 0):.3g}"),
            "dlogprob": float(f"{np.abs(a - b).max():.3g}"),
            "top1": bool(got["top"][0]["id"] == ids[0]),
            "d_nll": None
            if got["nll_mean"] is None
            else float(f"{got['nll_mean'] - want['nll_mean']:.3g}"),
            "engine": got,
        }
        row["pass"] = (
            row["kl"] <= limits["kl"]
            and row["dlogprob"] <= limits["dlogprob"]
            and abs(row["d_nll"] or 0) <= limits["d_nll"]
            and (row["top1"] or limits["loose"])
        )
        rows.append(row)
    return {"limits": limits, "rows": rows, "pass": all(r["pass"] for r in rows)}


def refusal(peer, path, prompts):
    """Both engines must say no, llama.cpp because it does not know the architecture."""
    with tempfile.TemporaryDirectory() as tmp:
        ids = Path(tmp) / "ids"
        ids.write_text(" ".join(map(str, prompts[0]["ids"])))
        r = run([peer, path, ids, Path(tmp) / "logits"])
    said = [x for x in r.stderr.splitlines() if "unknown model architecture" in x]
    try:
        from transformers import AutoConfig

        AutoConfig.from_pretrained(str(Path(path).parent), gguf_file=Path(path).name)
        theirs = None
    except Exception as e:  # any refusal is right; its text goes into the record
        theirs = f"{type(e).__name__}: {e}"[:300]
    return {
        "llama_cpp": said[-1] if said else None,
        "transformers": theirs,
        "pass": r.returncode == 3 and bool(said) and theirs is not None,
    }


# ---------------------------------------------------------------- command line
def read_prompts(args):
    doc = json.loads(Path(args.prompts).read_text())
    if isinstance(doc, dict):
        doc = doc[args.model_key] if args.model_key else [doc]
    chosen = [c for c in doc if not args.only or c["name"] in args.only]
    return [{"name": c["name"], "ids": c["ids"][: args.first]} for c in chosen]


def versions(args, llama):
    import torch
    import transformers

    v = {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    v["llama_cpp_source"] = next((p.name for p in llama.glob("src/llama_cpp_python-*")), "unknown")
    r = run([llama / "bin/llama-cli", "--version"])
    v["llama_cpp"] = next(
        (x for x in (r.stderr + r.stdout).splitlines() if "version" in x), "unknown"
    )
    if args.zerope:
        v["zerope"] = must([args.zerope, "version"]).splitlines()[0]
    return v


def parse():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--zerope")
    ap.add_argument("--reference")
    ap.add_argument("--expected")
    ap.add_argument("--llama", required=True, type=Path)
    ap.add_argument("--prompts", required=True)
    ap.add_argument("--model-key")
    ap.add_argument("--only", action="append", help="prompt names to use (default: all)")
    ap.add_argument("--first", type=int, help="cut each prompt to its first N tokens")
    for kind in ("hf", "gguf", "refused"):
        ap.add_argument(f"--{kind}", action="append", default=[])
    ap.add_argument("--name", default="export")
    ap.add_argument("--kl", type=float, default=1e-6)
    ap.add_argument("--dlogprob", type=float, default=1e-3)
    ap.add_argument("--d-nll", type=float, default=1e-4)
    ap.add_argument("--out", required=True, type=Path)
    args = ap.parse_args()
    if not args.expected and not (args.zerope and args.reference):
        ap.error("give --zerope and --reference, or --expected")
    return args


def attempt(checks, engine, form, path, measure):
    """An engine that stops is a failed check, not the end of the run."""
    try:
        result = measure()
    except Exception as e:
        result = {"error": f"{type(e).__name__}: {e}"[:2000], "pass": False}
    checks.append({"engine": engine, "form": form, "sha256": hashes(path)} | result)


def check_all(args, prompts, expected):
    exact = {"kl": args.kl, "dlogprob": args.dlogprob, "d_nll": args.d_nll, "loose": False}
    loose = {"kl": 0.05, "dlogprob": 1.0, "d_nll": 0.2, "loose": True}
    peer, checks = peer_binary(args.llama, "peer_logits"), []

    def as_f32(path):
        with tempfile.TemporaryDirectory() as tmp:
            return by_llama_cpp(peer, to_f32(args.llama, path, tmp), prompts)

    for folder in args.hf:
        attempt(
            checks,
            "transformers, f32, eager",
            "hf",
            folder,
            lambda: compare(expected, by_transformers(folder, prompts), prompts, exact),
        )
    for path in args.gguf:
        attempt(
            checks,
            "llama.cpp, weights cast to f32, f32 KV, no flash",
            "stock-gguf",
            path,
            lambda: compare(expected, as_f32(path), prompts, exact),
        )
        attempt(
            checks,
            "llama.cpp, file as it is, f32 KV, no flash",
            "stock-gguf",
            path,
            lambda: compare(expected, by_llama_cpp(peer, path, prompts), prompts, loose),
        )
    for path in args.refused:
        attempt(checks, "both must refuse", "gguf", path, lambda: refusal(peer, path, prompts))
    return checks


def main():
    args = parse()
    prompts = read_prompts(args)
    expected = by_zerope(args, prompts)
    checks = check_all(args, prompts, expected)
    record = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"),
        "versions": versions(args, args.llama),
        "reference_sha256": hashes(args.reference) if args.reference else None,
        "prompts": prompts,
        "zerope": {
            n: {k: e[k] for k in ("n_tokens", "nll_mean") if k in e}
            | {"top": [{k: t[k] for k in ("id", "logprob")} for t in e["top"]]}
            for n, e in expected.items()
        },
        "checks": checks,
        "pass": bool(checks) and all(c["pass"] for c in checks),
    }
    doc = json.loads(args.out.read_text()) if args.out.exists() else {}
    doc[args.name] = record
    args.out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(doc, indent=1)
    text = re.sub(r"\[[\s\d,]+\]", lambda m: re.sub(r"\s+", "", m.group()), text)  # ids on one line
    text = re.sub(r'\{\s+("id": \d+),\s+("logprob": [^\s]+)\s+\}', r"{\1, \2}", text)
    args.out.write_text(text + "\n")
    for c in checks:
        worst = max((r["kl"] for r in c.get("rows", [])), default=None)
        far = max((r["dlogprob"] for r in c.get("rows", [])), default=None)
        print(
            f"{'pass' if c['pass'] else 'FAIL'}  {args.name}  {c['form']:10s} {c['engine']}"
            + ("" if worst is None else f"  KL {worst:.2g}  |d ln p| {far:.2g}")
            + (f"  {c['error'].splitlines()[0]}" if "error" in c else "")
        )
    return 0 if record["pass"] else 1


if __name__ == "__main__":
    sys.exit(main())
