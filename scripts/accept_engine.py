"""accept_engine.py: acceptance lines of the engine: speed beside llama.cpp, long contexts, memory.

What takes long is kept in build/accept/ and reused.
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
from statistics import correlation, median, quantiles

from accept_common import (CORPUS, EVIDENCE, MODEL, ROOT, WORK, ZEROPE, commit, peer, record, run,
                           zerope)
from accept_resident import Resident, in_turn

PAIRS = 7
THREADS = os.cpu_count()
# test of bench/compare at depth 0: least ratio to llama.cpp, least share of the read bandwidth
TARGETS = {
    "smollm2": {"prefill": (8, None), "decode": (2.7, 0.80)},
    "gemma3": {"prefill": (4, None), "decode": (1.8, None)},
    "synthetic": {"prefill": (1, None), "decode": (1, None)},
}
# KV type, test, depth: the same; two ratios: where the machine reads less than 55 GB/s, and where
# it reads more. Prefill goes in chunks, decode in rounds of some tokens
DEEPEST, CHUNK, DECODED, DECODE_DEPTHS, KV_TYPES = 32768, 4096, 32, (4096, 32768), ("bf16", "q8")
DEEP = {
    ("bf16", "prefill", 32768): ((6, 6), None),
    ("bf16", "decode", 4096): ((3, 3), None),
    ("bf16", "decode", 32768): ((3.4, 4.5), 0.75),
    ("q8", "decode", 32768): ((5.4, 7), 0.70),
}


def synthetic():
    """A model of 1B geometry, Q4_K_M, random weights; kept."""
    path = WORK / "synthetic-1b.gguf"
    if not path.exists():
        run(ROOT / "tools/synthetic_gguf.py", path)
    return path


def line_targets():
    """Prefill of 512 tokens and decode beside llama.cpp, three models."""
    peer("LLAMA", "build folder of llama.cpp")
    models, judged = {**MODEL, "synthetic": synthetic()}, []
    for name, targets in TARGETS.items():
        kept = WORK / f"compare-{name}.json"
        if not kept.exists():
            run(ROOT / "bench/compare", ZEROPE, "-m", models[name], "--pairs", PAIRS, "-o", kept)
        for row in json.loads(kept.read_text(encoding="utf-8"))["rows"]:
            ratio, share = targets[row["test"]]
            holds = row["ratio"] >= ratio and (share is None or row["fraction"] >= share)
            judged.append({"model": name, **row, "least_ratio": ratio, "least_share": share,
                           "holds": holds})
    return record("engine", "targets", all(r["holds"] for r in judged), rows=judged)


def judge_deep(kv, test, depth, rounds):
    """One row: ours of a KV type beside llama.cpp, over the rounds of a test at a depth."""
    theirs, ours = ([r[side]["seconds"] for r in rounds] for side in ("llama", kv))
    ratios = [a / b for a, b in zip(theirs, ours)]
    low, middle, high = quantiles(ratios, n=4)
    read, share = median(r[kv]["read_gbps"] for r in rounds), None
    if test == "prefill":  # chunks differ by their depth: all of them together
        tokens, theirs, ours = DEEPEST, sum(theirs), sum(ours)
        middle = theirs / ours
    else:
        tokens, theirs, ours = DECODED, median(theirs), median(ours)
        share = median(r[kv]["share"] for r in rounds)
    by_read, least_share = DEEP.get((kv, test, depth), ((0, 0), None))
    least = by_read[read >= 55]
    return {"kv": kv, "test": test, "depth": depth, "ratio": middle, "ratio_quartiles": [low, high],
            "ours": tokens / ours, "theirs": tokens / theirs, "share": share, "read_gbps": read,
            "least_ratio": least, "least_share": least_share,
            "holds": middle >= least and (share or 0) >= (least_share or 0)}


def deep_decode(sides):
    """Rounds of decode at the depth reached; the one before them warms up."""
    rounds = [in_turn(sides, i, f"decode {DECODED}", KV_TYPES) for i in range(PAIRS + 1)][1:]
    for kv in KV_TYPES:
        step = sides[kv].ask("bytes")
        for r in (r[kv] for r in rounds):
            r["share"] = step * DECODED / r["seconds"] / r["read_gbps"] * 1e-9
    return rounds


def deep_rounds(sides):
    """{(test, depth): rounds} of three sides, all loaded, one of them working at a time."""
    for side in sides.values():  # loaded and warm
        for request in ("fill 64", "decode 4", "cut 0"):
            side.ask(request)
    rounds, chunks = {}, []
    for i in range(DEEPEST // CHUNK):
        chunks.append(in_turn(sides, i, f"fill {CHUNK}", KV_TYPES))
        depth = (i + 1) * CHUNK
        if depth in DECODE_DEPTHS:
            rounds[("decode", depth)] = deep_decode(sides)
    return {("prefill", DEEPEST): chunks, **rounds}


def line_deep():
    """Prefill to 32K, decode at 4K and 32K, 16-bit and 8-bit KV, in turns with llama.cpp.

    About 25 minutes. Its KV is f16 in both cases. idle_cpu: what the two programs that wait use, as
    a share of the time measured.
    """
    llama = run(ROOT / "tools/build_peer.py", peer("LLAMA", "build folder of llama.cpp"),
                "peer_deep").strip()
    ours, model, n_ctx = ROOT / "build/release/deep", MODEL["smollm2"], DEEPEST + 256
    commands = {"llama": (llama, model, n_ctx, THREADS),
                **{kv: (ours, model, kv, n_ctx, THREADS) for kv in KV_TYPES}}
    with contextlib.ExitStack() as stack:
        rounds = deep_rounds({side: stack.enter_context(Resident(*command))
                              for side, command in commands.items()})
    judged = [judge_deep(kv, *test, found) for test, found in rounds.items() for kv in KV_TYPES]
    times = [r[s] for found in rounds.values() for r in found for s in ("llama", *KV_TYPES)]
    idle = sum(t["idle_cpu"] for t in times) / sum(t["seconds"] for t in times)
    return record("engine", "deep", all(r["holds"] for r in judged) and idle <= 0.01, rows=judged,
                  idle_cpu=idle, most_idle_cpu=0.01,
                  rounds={f"{test} {depth}": found for (test, depth), found in rounds.items()})


def line_batch():
    """16 sequences, depth 512, 128 tokens each: >= 6x llama-batched-bench."""
    bench = peer("LLAMA", "build folder of llama.cpp") / "bin/llama-batched-bench"
    rows = []
    for _ in range(PAIRS):
        ours = zerope("bench", MODEL["smollm2"], "-p", 0, "-n", 128, "-d", 512, "--batch", 16,
                      "--separate", "-r", 1)["rows"][-1]
        theirs = run(bench, "-m", MODEL["smollm2"], "-npp", 512, "-ntg", 128, "-npl", 16, "-c",
                     16 * 640, "-t", THREADS, "--output-format", "jsonl", stderr=subprocess.DEVNULL)
        found = next(json.loads(t) for t in theirs.splitlines() if t.startswith("{"))
        rows.append({"ours": ours["tps_median"], "theirs": found["speed_tg"],
                     "read_gbps": ours["peak_gbps"], "load": os.getloadavg()[0]})
    ratio = median(r["ours"] / r["theirs"] for r in rows)
    return record("engine", "batch", ratio >= 6, ratio=ratio, least_ratio=6, rows=rows)


# ---- local heads, kinds of positions, long contexts


def changed_model(name, local=(), closed=()):
    """SmolLM2 with some local heads and closed gates, whatever it costs; kept."""
    path, plan = WORK / f"{name}.gguf", WORK / f"{name}-plan.json"
    if path.exists():
        return path
    d = zerope("inspect", MODEL["smollm2"], "--quiet")
    document = {"format": "zerope-plan", "version": 1, "model": "-", "text": "-",
                "model_sha256": d["header_sha256"], "ctx": 1024, "budget_kl": 0.0, "kl_mean": 0.0,
                "local_window": 256 if local else 0, "uniform": False, "uniform_slow": False,
                "layers": False, "folds": False, "planning_documents": [], "n_layer": d["n_layer"],
                "n_kv": d["n_kv"], "n_pair": d["rope"]["n_pair"], "closed_gates": list(closed),
                "local_heads": list(local), "used": len(local) + len(closed),
                "order": [["local", h[0], h[1], 0] for h in local] + [["gate", *g] for g in closed]}
    plan.write_text(json.dumps(document), encoding="utf-8")
    zerope("evaporate", MODEL["smollm2"], "-f", CORPUS, "-c", 1024, "--plan", plan, "--close-all",
           "--no-fold", "--quiet", "-o", path)
    return path


def line_local():
    """Decode at 32K with 60 of 90 heads local (W 256): >= 2x of all full, KV bytes <= 0.36x."""
    local = changed_model("local60", local=[[l, k, 256] for l in range(30) for k in range(2)])
    documents = {"full": [], "local": []}
    for _ in range(PAIRS):
        for name, path in (("full", MODEL["smollm2"]), ("local", local)):
            documents[name].append(zerope("bench", path, "-p", 0, "-n", 32, "-d", "32k",
                                          "--copy-fill", "-r", 1, "--quiet"))
    tps = {k: [d["rows"][-1]["tps_median"] for d in v] for k, v in documents.items()}
    ratio = median(x / y for x, y in zip(tps["local"], tps["full"]))
    kept = [zerope("inspect", m, "-c", "32k")["memory"]["kv_bytes"]
            for m in (local, MODEL["smollm2"])]
    kv = kept[0] / kept[1]
    return record("engine", "local", ratio >= 2 and kv <= 0.36, ratio=ratio, kv=kv, tps=tps)


def line_positions():
    """What each kind of position costs at 4K, 32K, 128K: time, memory, calls. Reported."""
    kept = WORK / "positions.json"
    if not kept.exists():
        run(ROOT / "bench/positions", ZEROPE, "-m", MODEL["smollm2"], "-o", kept)
    rows = json.loads(kept.read_text(encoding="utf-8"))["rows"]
    return record("engine", "positions", True, rows=rows)


def position_free():
    gates = [[l, k, i] for l in range(30) for k in range(3) for i in range(32)]
    return changed_model("position-free", closed=gates)


def text_of(n_tokens, model):
    """The head of the corpus that has so many tokens."""
    text = "".join(p.read_text(encoding="utf-8") for p in sorted(CORPUS.rglob("*.txt")))
    low, high = 0, min(len(text), 10 * n_tokens)
    while low < high:  # the least length with as many
        middle = (low + high) // 2
        found = zerope("tokenize", model, "-f", "-", "--quiet", input=text[:middle])
        low, high = (low, middle) if len(found["ids"]) >= n_tokens else (middle + 1, high)
    return text[:low]


def line_128k():
    """A position-free 135M model at 131,072 tokens, q8: same bits in micro-batches of any size."""
    model, text = position_free(), WORK / "128k.txt"
    if not text.exists():
        text.write_text(text_of(131072, model), encoding="utf-8")
    kept = EVIDENCE / "engine-128k.json"  # each run takes half an hour: delete it to begin anew
    results = json.loads(kept.read_text(encoding="utf-8"))["results"] if kept.exists() else {}
    for batch in ("2048", "512", "131072"):
        if batch not in results:
            found = zerope("logits", model, "-f", text, "-b", batch, "-ctk", "q8", "--quiet")
            results[batch] = {"commit": commit(), **found}
        same = len(results) == 3 and len({json.dumps([r["top"], r["nll_mean"]])
                                          for r in results.values()}) == 1
        record("engine", "128k", same, complete=len(results) == 3, results=results)
    return same


def granted_seconds(contexts):
    """Seconds of 64 tokens decoded by engines that were granted these contexts, in turns."""
    ours, model = ROOT / "build/release/deep", MODEL["smollm2"]
    with contextlib.ExitStack() as stack:
        sides = {c: stack.enter_context(Resident(ours, model, "q8", c, THREADS)) for c in contexts}
        rounds = [in_turn(sides, i, "decode 64") for i in range(4 * PAIRS + 1)][1:]
    return [[r[c]["seconds"] for c in contexts] for r in rounds]


def line_depths():
    """Time of a token at depths up to 131,072 grows linearly; the context granted costs nothing."""
    depths = "0,16k,32k,48k,64k,80k,96k,112k,128k"
    runs = [zerope("bench", position_free(), "-p", 0, "-n", 16, "-d", depths, "-r", 3, "-ctk", "q8",
                   "--copy-fill", "-o", EVIDENCE / "engine-depths.svg", "--quiet")["rows"]
            for _ in range(3)]  # in turns: the machine's speed drifts
    rows = [(same[0]["depth"], median(r["seconds_median"] / r["tokens"] for r in same))
            for same in zip(*runs)]
    linear = correlation(*zip(*rows)) ** 2  # share of the variance that a line explains
    granted = granted_seconds((1088, 131072))
    cost = median(large / small for small, large in granted)
    return record("engine", "depths", linear >= 0.99 and cost <= 1.05, seconds=rows, linear=linear,
                  granted_cost=cost, granted_seconds=granted)


# ---- the machine's other work


def decode_tps(*options):
    return zerope("bench", MODEL["smollm2"], "-p", 0, "-n", 64, "-r", 1, "--quiet",
                  *options)["rows"][-1]["tps_median"]


def with_busy_core(measure):
    command = ["taskset", "-c", "1", "sh", "-c", "while :; do :; done"]
    with subprocess.Popen(command) as other:
        try:
            time.sleep(0.5)
            return measure()
        finally:
            other.send_signal(signal.SIGKILL)


def line_busy():
    """One core busy with another process: decode >= 45 % of idle; 4 threads on 2 cores >= 0.8x."""
    rows = [{"idle": decode_tps(), "busy": with_busy_core(decode_tps),
             "threads_2": decode_tps("-t", 2), "threads_4": decode_tps("-t", 4)}
            for _ in range(PAIRS)]
    busy = median(r["busy"] / r["idle"] for r in rows)
    four = median(r["threads_4"] / r["threads_2"] for r in rows)
    return record("engine", "busy", busy >= 0.45 and four >= 0.8, busy=busy, threads_4=four,
                  rows=rows)


def cost(command):
    """Largest resident bytes of a command, and its seconds from exec to its end."""
    begin = time.monotonic()
    with subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as p:
        p.stdout.read()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode != 0:
        raise RuntimeError(f"{command}: exit code {p.returncode}")
    return usage.ru_maxrss * 1024, time.monotonic() - begin


def line_rss():
    """RSS after load with a context of 4096: <= 0.8x (135M), <= 0.7x (synthetic 1B Q4_K_M)."""
    bench = peer("LLAMA", "build folder of llama.cpp") / "bin/llama-batched-bench"
    rows = []
    for name, path, least in (("smollm2", MODEL["smollm2"], 0.8), ("synthetic", synthetic(), 0.7)):
        ours, _ = cost([ZEROPE, "logits", path, "--ids", "1,2,3,4,5,6,7,8", "-c", 4096])
        theirs, _ = cost([bench, "-m", path, "-c", 4096, "-npp", 8, "-ntg", 1, "-npl", 1, "-t",
                          THREADS])
        rows.append({"model": name, "ours": ours, "theirs": theirs, "ratio": ours / theirs,
                     "file": path.stat().st_size, "most": least})
    return record("engine", "rss", all(r["ratio"] <= r["most"] for r in rows), rows=rows)


def line_start():
    """8 tokens of prompt, warm: first byte <= 0.03 s after exec, end <= 0.25x llama.cpp's."""
    llama, kept = peer("LLAMA", "build folder of llama.cpp") / "bin/llama-cli", WORK / "start.json"
    prompt = "-p 'The capital of the old country was' -n 1"
    cache = WORK / "start-cache"  # of its own, so that packed weights are written anew
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(parents=True)
    run(ROOT / "bench/start", f"XDG_CACHE_HOME={cache} {ZEROPE} run {MODEL['smollm2']} {prompt} -q",
        f"{llama} -m {MODEL['smollm2']} {prompt} -st --simple-io --no-warmup -t {THREADS}",
        "--rounds", 3 * PAIRS, "-o", kept)
    document = json.loads(kept.read_text(encoding="utf-8"))
    ours, theirs = document["rows"]
    ratio = median(r[0]["end_ms"] / r[1]["end_ms"] for r in document["rounds"])
    return record("engine", "start", ours["first_ms"] <= 30 and ratio <= 0.25, ratio=ratio,
                  least_first_ms=min(r[0]["first_ms"] for r in document["rounds"]), zerope=ours,
                  llama=theirs)


# ---- reuse


def line_restore():
    """32K tokens saved, restored in a new process: first token <= 0.25 s after start, same ids."""
    text, saved = WORK / "32k.txt", WORK / "32k.zpseq"
    if not text.exists():
        text.write_text(text_of(32600, MODEL["smollm2"]), encoding="utf-8")
    command = [ZEROPE, "run", MODEL["smollm2"], "-f", text, "-c", 32768, "-ctk", "q8",
               "--prompt-cache", saved, "--quiet"]
    first = json.loads(run(*command, "-n", 8, "--json"))["ids"]
    rows = [cost([*command, "--prompt-cache-ro", "-n", 1])[1] for _ in range(PAIRS)]
    again = json.loads(run(*command, "--prompt-cache-ro", "-n", 8, "--json"))
    seconds = median(rows)
    holds = seconds <= 0.25 and again["ids"] == first and again["n_reused"] >= 32000
    return record("engine", "restore", holds, seconds=seconds, rows=rows, ids=first,
                  n_reused=again["n_reused"], bytes=saved.stat().st_size)


def line_reuse():
    """Ten questions over 8 of 20 documents: pages appended beside prefix caching alone; KL."""
    text = ROOT / "tests/data/prose.txt"
    document = json.loads(run(ROOT / "build/release/reuse", position_free(), text, 1))
    times = {r["way"]: r["first_token"] for r in document["rows"]}
    return record("engine", "reuse", times["append 0"] < times["prefix"], **document)


def line_soak():
    """30 minutes of mixed work: memory flat, nothing lost, the same answers."""
    log = run(pathlib.Path(ROOT) / "build/release/soak", MODEL["smollm2"], 1800, "q8")
    rows = [json.loads(t) for t in log.splitlines()]
    rss = [r["rss"] for r in rows if "rss" in r]
    holds = max(rss[5:]) <= 1.02 * rss[4]
    return record("engine", "soak", holds, rows=rows)
