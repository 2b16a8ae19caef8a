"""accept_foundation.py: acceptance lines of scan, plan, evaporate, verify and export.

Scans and reports of single runs are kept in build/accept/ and reused.
"""
import datetime
import json
import os
import pathlib
import statistics
import subprocess

from accept_common import (CORPUS, EVIDENCE, MODEL, MODELS, ROOT, WORK, ZEROPE, commit, peer,
                           record, run, zerope)

BUDGETS = (0.001, 0.005, 0.02, 0.1)
LENGTHS = (256, 1024, 2048)
VERIFY_FAILED = 5  # exit code of a failed check


def scan(model, length, local=0):
    path = WORK / f"scan-{model}-{length}{'-local' if local else ''}.json"
    if not path.exists():
        extra = ("--local", local) if local else ()
        zerope("scan", MODEL[model], "-f", CORPUS, "-c", length, *extra, "-o", path)
    return path


def evaporate(model, length, budget, *extra, scanned):
    """The report of one run; kept, so that a grid that was interrupted goes on where it was."""
    out = WORK / f"{model}-{length}-{budget}{''.join(map(str, extra))}.gguf"
    kept = out.with_suffix(".json")
    if not kept.exists():
        result = zerope("evaporate", MODEL[model], "-f", CORPUS, "-c", length, "--budget-kl",
                        budget, "--scan", scanned, *extra, "-o", out)
        row = {**summary(result), "commit": commit(), "date": datetime.date.today().isoformat()}
        kept.write_text(json.dumps(row), encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))


def summary(result):
    """The report without its long lists."""
    kept = {k: v for k, v in result.items() if k not in ("closed_gates", "local_heads")}
    return {**kept, "file": pathlib.Path(kept["file"]).name}


def grid(model, lengths):
    rows = []
    for length in lengths:
        for budget in BUDGETS:
            row = evaporate(model, length, budget, scanned=scan(model, length))
            rows.append(row)
            print(f"  {model} C={length} X={budget}: {row['closed']}/{row['total']} closed, "
                  f"KL {row['kl_mean']:.5f}, upper {row['kl_hi']:.5f}", flush=True)
    return rows


def promise(model, lengths):
    rows = grid(model, lengths)
    holds = all(r["kl_hi"] <= r["budget_kl"] for r in rows)
    return record("foundation", f"promise-{model}", holds, rows=rows)


def line_promise_smollm2():
    """KL never exceeds the budget: X in {.001 .005 .02 .1}, C in {256 1024 2048}, SmolLM2."""
    return promise("smollm2", LENGTHS)


def line_promise_gemma3():
    """The same on Gemma-3-270M."""
    return promise("gemma3", LENGTHS)


def line_share():
    """SmolLM2 at X = 0.02: >= 45 % closed at 256, >= 40 % at 1024 in <= 15 minutes."""
    rows = []
    for length in (256, 1024):
        out = WORK / f"share-{length}.gguf"
        rows.append(summary(zerope("evaporate", MODEL["smollm2"], "-f", CORPUS, "-c", length,
                                   "--budget-kl", 0.02, "-o", out)))
    share = [r["closed"] / r["total"] for r in rows]
    seconds = [r["seconds_scan"] + r["seconds_plan"] + r["seconds_check"] for r in rows]
    holds = share[0] >= 0.45 and share[1] >= 0.40 and seconds[1] <= 900
    return record("foundation", "share", holds, share=share, seconds=seconds, rows=rows)


def line_local():
    """--local 256 at X = 0.02, C = 1024: >= 55 of 90 heads local, retrieval within 2 points."""
    scanned = scan("smollm2", 1024, local=256)
    row = evaporate("smollm2", 1024, 0.02, "--local", 256, scanned=scanned)
    checks = zerope("verify", WORK / row["file"], "--base", MODEL["smollm2"], "-f", CORPUS,
                    codes=(0, VERIFY_FAILED))["checks"]
    retrieval = [c for c in checks if "accuracy" in c["name"]]
    kept = all(c["status"] in ("pass", "n/a") for c in retrieval)
    holds = row["heads_local"] >= 55 and kept and row["kl_hi"] <= 0.02
    return record("foundation", "local", holds, row=row, retrieval=retrieval)


def line_speed():
    """Prefill 512 >= 2x and decode >= 1x llama.cpp on SmolLM2, interleaved (A B A B)."""
    bench, rows = peer("LLAMA", "build folder of llama.cpp") / "bin/llama-bench", []
    text = (ROOT / "tests/data/prose.txt").read_text(encoding="utf-8")[:2300]
    for _ in range(7):
        ours = json.loads(run(ZEROPE, "run", MODEL["smollm2"], "-f", "-", "-n", 64, "-c", 1024,
                              "--quiet", "--json", input=text))["timings"]
        theirs = json.loads(run(bench, "-m", MODEL["smollm2"], "-p", 512, "-n", 64, "-t",
                                os.cpu_count(), "-r", 1, "-o", "json",
                                stderr=subprocess.DEVNULL))
        rows.append({"prefill": ours["prefill_tps"], "decode": ours["decode_tps"],
                     "prompt": ours["prefill_tokens"], "llama_prefill": theirs[0]["avg_ts"],
                     "llama_decode": theirs[1]["avg_ts"], "llama_threads": theirs[0]["n_threads"],
                     "llama_build": theirs[0]["build_commit"], "load": os.getloadavg()[0]})
    ratio = {k: statistics.median(r[k] / r[f"llama_{k}"] for r in rows)
             for k in ("prefill", "decode")}
    holds = ratio["prefill"] >= 2 and ratio["decode"] >= 1
    return record("foundation", "speed", holds, ratio=ratio, rows=rows)


def line_export():
    """Every export route gives the same logits in transformers and llama.cpp."""
    out = EVIDENCE / f"export-{datetime.date.today().isoformat()}.json"
    llama = peer("LLAMA", "build folder of llama.cpp")
    python = peer("PEER_PYTHON", "python with torch and transformers")
    run(ROOT / "tools/export_evidence.sh", ZEROPE, llama, python, MODELS, CORPUS, out)
    cases = {name: case["pass"] for name, case in json.loads(out.read_text("utf-8")).items()}
    return record("foundation", "export", all(cases.values()), evidence=out.name, cases=cases)


def gate(model, text, windows):
    """KL and change of NLL of both engines' default paths, each against its own exact one."""
    llama = peer("LLAMA", "build folder of llama.cpp") / "bin"
    ours = json.loads(run(ROOT / "build/release/bench_gate", MODEL[model], text, windows))
    theirs = json.loads(run(ROOT / "tools/peer_kl.sh", llama, MODEL[model], text, windows))
    holds = (ours["kl_mean"] <= 1.3 * theirs["kl_mean"] and
             abs(ours["d_nll"]) <= max(0.002, 1.3 * abs(theirs["d_nll"])))
    return {"model": model, "holds": holds, "zerope": ours, "llama": theirs}


def line_gate():
    """32K tokens of documents: the default path's KL and NLL within 1.3 times llama.cpp's."""
    run("cmake", "--build", ROOT / "build/release", "--target", "bench_gate")
    text, size = WORK / "gate.txt", 0
    with text.open("wb") as out:
        for path in sorted(p for p in CORPUS.rglob("*") if p.is_file()):
            size += out.write(path.read_bytes())
            if size > 400_000:
                break
    rows = [gate(model, text, 32) for model in MODEL]
    return record("foundation", "gate", all(row["holds"] for row in rows), rows=rows)


def line_fuzz():
    """Fuzz targets, 10 minutes each, no finding."""
    log = run(ROOT / "scripts/fuzz", "600")
    return record("foundation", "fuzz", True, log=log.splitlines()[-40:])
