# Text view: all tensors when asked for, triples as triples, -t in the memory plan, no hint at
# options that inspect lacks.
closed="$DATA/arch/gguf/gguf-llama-closed.gguf"
zerope inspect "$closed" | grep -e '^closed_gates' -e 'error' | sed 's, [^ ]*/gguf, gguf,'
many="$DATA/arch/gguf/gguf-smollm3.gguf"
a=$(zerope inspect "$many" --tensors --json | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["tensors"]))')
b=$(zerope inspect "$many" --tensors | sed -n '/^tensors/,$p' | grep -c weight)
echo "$((a == b)) $((a > 0))"
zerope inspect "$closed" -t 1 --json | grep n_threads
zerope inspect "$closed" -t 256 --json | grep -o "\"n_threads\": $(nproc)," | tr -d "[0-9]"
