"""accept_training.py: acceptance lines of training.

What takes long is kept in build/accept/ and reused.
"""
import json
import os
import subprocess

from accept_common import CORPUS, MODEL, WORK, ZEROPE, record, zerope

GRANTED = 8 * 10**9
REST = 1 << 20  # what a run may hold beyond its plan: trainplan.h
PARTS = ("weights", "parameters", "gradients", "optimiser", "activations", "products")
# of SmolLM2-135M, whose file is Q4_1: adapters on it are QLoRA
RUNS = {
    "fine-tune": ["train"],
    "fine-tune, recomputed": ["train", "--recompute"],
    "fine-tune, KL to the original": ["train", "--original", MODEL["smollm2"]],
    "QLoRA": ["train", "--lora-rank", 8],
    "QLoRA, recomputed": ["train", "--lora-rank", 8, "--recompute"],
    "attention matched, q and k": ["anneal", "--original", MODEL["smollm2"], "--match", "--learn",
                                   "qk"],
    "learned gates, KL to the original": ["anneal", "--policy", "l1", "--original",
                                          MODEL["smollm2"]],
}


def tokens():
    """The corpus as SmolLM2's tokens; kept."""
    path = WORK / "smollm2.tokens"
    if not path.exists():
        zerope("corpus", "-f", CORPUS, "--tokenizer", MODEL["smollm2"], "-o", path, "--quiet")
    return path


def resident(command):
    """A command's document and the most memory that it held, by the kernel's count."""
    with subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, text=True) as process:
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{command}: exit code {process.returncode}")
    return json.loads(text), usage.ru_maxrss * 1024


def line_memory():
    """Memory of 135M runs at 512 tokens, two steps: planned = counted, within 8 GB."""
    rows = []
    for name, (verb, *options) in RUNS.items():
        words = [verb, MODEL["smollm2"], *options, "--corpus", tokens(), "--tokens", 2 * 512, "-c",
                 512, "--batch-rows", 1, "--eval-windows", 2, "-o", WORK / "memory.gguf", "--quiet"]
        plan = zerope(*words, "--memory-plan")["memory"]["predicted"]
        report, held = resident([ZEROPE, *words, "--memory", GRANTED >> 20, "--json"])
        counted = report["memory"]["counted"]
        same = all(plan.get(p, 0) == counted.get(p, 0) for p in PARTS)
        rest = counted["total"] - plan["total"]
        fits = max(counted["total"], held) <= GRANTED
        rows.append({"run": name, "steps": report["steps"], "predicted": plan, "counted": counted,
                     "rest": rest, "resident": held, "holds": same and abs(rest) <= REST and fits})
    (WORK / "memory.gguf").unlink()
    return record("training", "memory", all(r["holds"] for r in rows), granted=GRANTED, rows=rows)
