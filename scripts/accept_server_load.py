"""accept_server_load.py: acceptance lines of the server at work: same bits, load, peers.

The programs themselves are in tests/serve/ and bench/serve/.
"""
import json
import subprocess
import sys

from accept_common import MODEL, ROOT, WORK, ZEROPE, peer, record, zerope

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


# ---- load ------------------------------------------------------------------------------------
MOST_SLOPE = 1 / 1.048576  # MiB a minute: 1 MB
# Each page of keys and values is touched within the first minutes: the pool is no larger.
POOL = "-c 4096 -np 16 --kv-tokens 32768 --max-queue 1024"


def loaded(line, mix, clients, seconds, **more):
    """One mix: all that was admitted succeeds, the books agree, memory does not grow."""
    arguments = [x for name, value in {"leave": 0.03, "plain": 0.1, **more}.items()
                 for x in (f"--{name}", value)]
    found, holds = program("bench/serve/served.py", ZEROPE, MODEL["smollm2"], "--mix", mix,
                           "--clients", clients, "--seconds", seconds, "--warm", 300,
                           "--server", POOL, *arguments)
    slope = found["memory"]["slope_mib_per_minute"]
    holds = holds and found["success_of_admitted"] == 1 and found["success_of_offered"] >= 0.999 \
        and found["books_agree"] and slope is not None and slope < MOST_SLOPE
    return record("server", line, holds, most_slope_mib_per_minute=MOST_SLOPE, **found)


def line_load_a():
    """Mix A, 8 clients, 10 minutes: long documents, two questions about each."""
    return loaded("load-a", "A", 8, 600)


def line_load_b():
    """Mix B, 16 clients, 10 minutes: dialogues of four turns."""
    return loaded("load-b", "B", 16, 600)


def line_load_c():
    """Mix C, 12 clients, 10 minutes: 70 % documents, 20 % dialogues, 10 % short questions."""
    return loaded("load-c", "C", 12, 600)


def line_clients():
    """100 clients, 10 minutes: success, books, memory, times."""
    return loaded("clients", "clients", 100, 600)


def line_clients_hour():
    """100 clients, an hour."""
    return loaded("clients-hour", "clients", 100, 3600)


def line_peer():
    """Total throughput beside llama-server in the same mixes: >= 3x. About 40 minutes."""
    llama = peer("LLAMA", "build folder of llama.cpp") / "bin/llama-server"
    rows = [program("bench/serve/peers.py", ZEROPE, llama, MODEL["smollm2"], "--mix", mix,
                    "--clients", clients, "--seconds", 120, "--rounds", 3)
            for mix, clients in (("A", 8), ("B", 16), ("C", 12))]
    return record("server", "peer", all(h and f["ratio"] >= 3 for f, h in rows), least_ratio=3,
                  rows=[f for f, _ in rows])


def line_batch_share():
    """16 streams through the server: >= 85 % of `zerope bench --batch 16` at the same depth."""
    found, _ = program("bench/serve/batch_share.py", ZEROPE, MODEL["smollm2"])
    return record("server", "batch-share", found["share"] >= 0.85, least_share=0.85, **found)
