#!/usr/bin/env bash
# export_evidence.sh: closes, exports and compares with transformers and llama.cpp.
# Usage: export_evidence.sh ZEROPE LLAMA_DIR PYTHON MODELS_DIR TEXT OUT.json [NAME...]
#   ZEROPE binary · LLAMA_DIR build of llama.cpp · PYTHON with torch and transformers
#   MODELS_DIR with smollm2-135m-instruct-q4_1.gguf · TEXT file or folder for evaporate
# NAME: only these cases. SmolLM2 with all gates closed, with whole layers closed, closed alike in
# all layers within a budget (any pairs, and the slowest), and small random models of each
# architecture. Each becomes what its row says, a Hugging Face folder or a stock GGUF or both, and
# the zerope-* file itself must be refused. See check_export.py for what is compared. Gates whose
# choice does not matter here are closed by a plan written on the spot, so that no scan is needed.
# Exit 0: all passed.
set -euo pipefail
zerope=${1:?zerope} llama=${2:?llama.cpp} python=${3:?python}
models=${4:?models} text=${5:?text} out=${6:?out}
shift 6
only=" $* "
here=$(dirname "$(realpath "$0")")
data=$here/../tests/data
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0

# make_plan MODEL RULE CTX: a plan that closes the gates for which RULE holds: a python expression
# over layer l, pair i, their counts L and P, and w, the layer's window.
make_plan() {
    "$zerope" inspect "$1" --json --quiet | python3 -c '
import json, sys
d, rule, ctx = json.load(sys.stdin), compile(sys.argv[1], "rule", "eval"), int(sys.argv[2])
L, K, P = d["n_layer"], d["n_kv"], d["rope"]["n_pair"]
open_at = lambda l, i: eval(rule, {"l": l, "i": i, "L": L, "P": P, "w": d["position"][l]["window"]})
gates = [[l, k, i] for l in range(L) for k in range(K) for i in range(P) if open_at(l, i)]
print(json.dumps({"format": "zerope-plan", "version": 1, "model": "-", "text": "-",
    "model_sha256": d["header_sha256"], "ctx": ctx, "budget_kl": 0.0, "kl_mean": 0.0,
    "local_window": 0, "uniform": False, "uniform_slow": False, "layers": False, "folds": False,
    "planning_documents": [], "n_layer": L, "n_kv": K, "n_pair": P, "closed_gates": gates,
    "local_heads": [], "order": [["gate", *g] for g in gates], "used": len(gates)}))' "$2" "$3"
}

# check NAME "KINDS" MODEL OPTION... [-- PROMPT-OPTION...]: evaporate MODEL with the options, export
# as each of KINDS (hf gguf), compare.
check() {
    local name=$1 kinds=$2 source=$3 options=() files=() prompts dir=$tmp/$1
    shift 3
    [[ $only = "  " || $only = *" $name "* ]] || return 0
    while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
    if [ $# -gt 0 ]; then shift; prompts=("$@"); else
        prompts=(--prompts "$data/arch/llama.json"); fi
    mkdir "$dir"
    "$zerope" evaporate "$source" -f "$text" "${options[@]}" -o "$dir/own.gguf" --quiet >"$dir/log"
    case $kinds in *hf*)
        "$zerope" export "$dir/own.gguf" --to hf -o "$dir/hf" --quiet >"$dir/log"
        files+=(--hf "$dir/hf") ;; esac
    case $kinds in *gguf*)
        "$zerope" export "$dir/own.gguf" --to stock-gguf -o "$dir/stock.gguf" --quiet >"$dir/log"
        files+=(--gguf "$dir/stock.gguf") ;; esac
    "$python" "$here/check_export.py" --zerope "$zerope" --reference "$dir/own.gguf" \
        --llama "$llama" --name "$name" --out "$out" "${prompts[@]}" "${files[@]}" \
        --refused "$dir/own.gguf" 2>"$dir/log" || { status=1; tail -3 "$dir/log" >&2; }
    rm -rf "$dir"
}

# closed NAME "KINDS" MODEL RULE CTX [-- ...]: the same with a plan made from the rule.
closed() {
    local name=$1 kinds=$2 source=$3 rule=$4 ctx=$5
    shift 5
    [[ $only = "  " || $only = *" $name "* ]] || return 0
    make_plan "$source" "$rule" "$ctx" >"$tmp/plan.json"
    check "$name" "$kinds" "$source" --plan "$tmp/plan.json" --close-all -c "$ctx" \
        --windows 2 "$@"
}

arch=$data/arch
closed llama-all "hf gguf" "$arch/llama" True 48
closed llama-slow "hf gguf" "$arch/llama" "i >= P // 2" 48
closed llama-layers "hf gguf" "$arch/llama" "l % 3 == 1" 48
closed llama3-pairs gguf "$arch/gguf/gguf-llama-llama3.gguf" "i % 3 == 0" 48
closed llama3-layers-pairs gguf "$arch/gguf/gguf-llama-llama3.gguf" "l == 1 or i % 3 == 0" 48
closed yarn-all gguf "$arch/gguf/gguf-llama-yarn.gguf" True 48
closed yarn-pairs gguf "$arch/gguf/gguf-llama-yarn.gguf" "i % 3 == 0" 48
closed qwen2-all "hf gguf" "$arch/qwen2" True 48
closed qwen2-slow "hf gguf" "$arch/qwen2" "i >= P // 2" 48
closed qwen2-layers gguf "$arch/gguf/gguf-qwen2.gguf" "l == 1" 48
closed qwen3-all "hf gguf" "$arch/qwen3" True 48
closed qwen3-slow hf "$arch/qwen3" "i >= P // 2" 48
closed smollm3-all "hf gguf" "$arch/gguf/gguf-smollm3.gguf" True 48
closed granite-all "hf gguf" "$arch/gguf/gguf-granite.gguf" True 48
closed granite-layers gguf "$arch/gguf/gguf-granite.gguf" "l == 1" 48
# llama.cpp's f16 table of GELU is visible on tests/data/arch/gemma3, whose activations are larger.
closed gemma3-unwindowed "hf gguf" "$arch/gguf/gguf-gemma3.gguf" "w == 0" 48

smollm2=$models/smollm2-135m-instruct-q4_1.gguf
real=(-- --prompts "$data/logits.json" --model-key smollm2 --first 400)
closed smollm2-all-closed "hf gguf" "$smollm2" True 256 "${real[@]}"
closed smollm2-layers "hf gguf" "$smollm2" "l % 3 == 1" 256 "${real[@]}"
budget=(--budget-kl 0.02 -c 256)
[[ $only = "  " || $only = *" smollm2-uniform"* ]] &&
    "$zerope" scan "$smollm2" -f "$text" -c 256 -o "$tmp/scan.json" --quiet >/dev/null
check smollm2-uniform gguf "$smollm2" --scan "$tmp/scan.json" --uniform "${budget[@]}" "${real[@]}"
check smollm2-uniform-slow "hf gguf" "$smollm2" --scan "$tmp/scan.json" --uniform-slow \
    "${budget[@]}" "${real[@]}"
exit $status
