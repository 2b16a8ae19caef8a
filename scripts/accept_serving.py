"""accept_serving.py: acceptance lines of the server under load, roll-out, faults and abuse.

The programs themselves are in tests/serve/ and bench/serve/.
"""
import json
import subprocess
import sys

from accept_common import MODEL, ROOT, WORK, ZEROPE, record, zerope

sys.path.insert(0, str(ROOT / "tests/serve"))
import half_file  # noqa: E402  pylint: disable=wrong-import-position


def program(path, *arguments, **options):
    """The JSON of a program here, whatever its exit code says of it, and whether that is 0."""
    done = subprocess.run([sys.executable, ROOT / path, *map(str, arguments)], check=False,
                          stdout=subprocess.PIPE, text=True, **options)
    if not done.stdout.strip():
        raise RuntimeError(f"{path}: exit code {done.returncode}, no result")
    return json.loads(done.stdout.strip().split("\n")[-1]), done.returncode == 0


def mixed_model():
    """SmolLM2 with every second pair closed in every third layer and a plan for mode half; kept."""
    path, closed, plan = WORK / "mixed.gguf", WORK / "mixed-closed.gguf", WORK / "mixed-plan.json"
    if path.exists():
        return path
    gates = [[l, k, i] for l in range(0, 30, 3) for k in range(3) for i in range(0, 32, 2)]
    found = zerope("inspect", MODEL["smollm2"], "--quiet")
    plan.write_text(json.dumps({
        "format": "zerope-plan", "version": 1, "model": "-", "text": "-",
        "model_sha256": found["header_sha256"], "ctx": 256, "budget_kl": 0.0, "kl_mean": 0.0,
        "local_window": 0, "uniform": False, "uniform_slow": False, "layers": False,
        "folds": False, "planning_documents": [], "n_layer": 30, "n_kv": 3, "n_pair": 32,
        "closed_gates": gates, "local_heads": [], "used": len(gates),
        "order": [["gate", *g] for g in gates]}), encoding="utf-8")
    zerope("evaporate", MODEL["smollm2"], "-f", ROOT / "tests/data/prose.txt", "-c", 256,
           "--windows", 2, "--plan", plan, "--close-all", "--no-fold", "--quiet", "-o", closed)
    half_file.half_file(ZEROPE, closed, path, 2000)
    closed.unlink()
    return path


def line_same_bits():
    """64 mixed requests at a time, prompts of 1 to 8K, all modes: the tokens of each alone.

    About half an hour on 2 cores: two rounds, each also one by one.
    """
    found, holds = program("tests/serve/same_bits.py", ZEROPE, "--model", mixed_model(), "--rounds",
                           2, "--kv-tokens", 200000, "--seed", 1, "--json")
    return record("server", "same-bits", holds, **found)
