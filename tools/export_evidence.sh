#!/usr/bin/env bash
# export_evidence.sh: closes, exports and compares with transformers and llama.cpp.
# Usage: export_evidence.sh ZEROPE LLAMA_DIR PYTHON MODELS_DIR TEXT OUT.json
#   ZEROPE binary · LLAMA_DIR build of llama.cpp · PYTHON with torch and transformers
#   MODELS_DIR with smollm2-135m-instruct-q4_1.gguf · TEXT file or folder for evaporate
# Three models: SmolLM2 with all gates closed, SmolLM2 closed alike in all layers within a budget,
# the small random llama of tests/data/arch with all gates closed. Each becomes a Hugging Face
# folder and a stock GGUF, and the zerope-* file itself must be refused. See check_export.py for
# what is compared. Exit 0: all passed.
set -euo pipefail
zerope=${1:?zerope} llama=${2:?llama.cpp} python=${3:?python}
models=${4:?models} text=${5:?text} out=${6:?out}
here=$(dirname "$(realpath "$0")")
data=$here/../tests/data
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# check NAME SOURCE PROMPT-OPTIONS -- EVAPORATE-OPTIONS
check() {
    local name=$1 source=$2 prompts=() failed=0
    shift 2
    while [ "$1" != -- ]; do prompts+=("$1"); shift; done
    shift
    mkdir "$tmp/$name"
    "$zerope" evaporate "$source" -f "$text" "$@" -o "$tmp/$name/own.gguf" --quiet
    "$zerope" export "$tmp/$name/own.gguf" --to hf -o "$tmp/$name/hf" --quiet
    "$zerope" export "$tmp/$name/own.gguf" --to stock-gguf -o "$tmp/$name/stock.gguf" --quiet
    "$python" "$here/check_export.py" --zerope "$zerope" --reference "$tmp/$name/own.gguf" \
        --llama "$llama" --name "$name" --out "$out" "${prompts[@]}" --hf "$tmp/$name/hf" \
        --gguf "$tmp/$name/stock.gguf" --refused "$tmp/$name/own.gguf" || failed=1
    return $failed
}

smollm2=$models/smollm2-135m-instruct-q4_1.gguf
real=(--prompts "$data/logits.json" --model-key smollm2 --first 400)
status=0
check smollm2-all-closed "$smollm2" "${real[@]}" -- --close-all -c 256 || status=1
check smollm2-uniform "$smollm2" "${real[@]}" -- --uniform --budget-kl 0.02 -c 256 || status=1
small=(--prompts "$data/arch/llama.json")
check small-llama-all-closed "$data/arch/llama" "${small[@]}" -- --close-all -c 64 || status=1
exit $status
