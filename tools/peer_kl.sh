#!/usr/bin/env bash
# peer_kl.sh: what llama.cpp loses by int8 activations, f16 KV and flash attention: the yardstick
# of our default path.
# Usage: peer_kl.sh LLAMA_BIN MODEL.gguf [TEXT] [CHUNKS] [CTX]
# LLAMA_BIN holds llama-quantize and llama-perplexity. The base is the same file with every tensor
# de-quantised to f32, f32 KV, flash attention off; the second half of each window is scored.
# Prints mean, 99 % and maximum of the KL, top-1 agreement in percent and the difference of the mean
# NLL as JSON. On tests/data/prose.txt (4 windows of 1024): smollm2 Q4_1 mean 0.00127, gemma3 Q4_K_M
# mean 0.00262, seen alike by two builds.
set -euo pipefail
bin=${1:?folder of llama.cpp binaries} model=${2:?model}
text=${3:-$(dirname "$0")/../tests/data/prose.txt} chunks=${4:-4} ctx=${5:-1024}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
run() { "$bin/llama-perplexity" -f "$text" -c "$ctx" --chunks "$chunks" -t "$(nproc)" "$@" 2>&1; }

"$bin/llama-quantize" --allow-requantize "$model" "$tmp/f32.gguf" F32 >"$tmp/quantize.log" 2>&1 ||
    { tail -5 "$tmp/quantize.log" >&2; exit 1; }
run -m "$tmp/f32.gguf" -ctk f32 -ctv f32 -fa off --kl-divergence-base "$tmp/base" >"$tmp/base.log"
run -m "$model" --kl-divergence --kl-divergence-base "$tmp/base" >"$tmp/kl.log"
python3 - "$tmp/kl.log" "$model" "$ctx" "$chunks" <<'PY'
import json, re, sys
log = open(sys.argv[1]).read()
def get(pattern):
    m = re.search(pattern + r"\s*:\s*(-?[0-9.]+)", log)
    return float(m.group(1)) if m else sys.exit(f"not found in the log: {pattern}\n{log[-2000:]}")
print(json.dumps({"model": sys.argv[2].rsplit("/", 1)[-1], "ctx": int(sys.argv[3]),
                  "chunks": int(sys.argv[4]),
    "kl_mean": get(r"Mean\s+KLD"), "kl_p99": get(r"99\.0%\s+KLD"), "kl_max": get(r"Maximum\s+KLD"),
    "top1_agree": get(r"Same top p"), "d_nll": get(r"Mean\s+ln\(PPL\(Q\)/PPL\(base\)\)")}))
PY
