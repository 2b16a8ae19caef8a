# An evaporated file promises a length without a verify: quantize drops it, and says so.
export ZEROPE_THREADS=1
head -c 20000 "$DATA/prose.txt" >text.txt
zerope evaporate "$DATA/arch/gguf/gguf-qwen2.gguf" -f text.txt -c 32 --budget-kl 0.001 \
    -o new.gguf -q >/dev/null
length() { zerope inspect $1 --json | python3 -c 'import json, sys
print(json.load(sys.stdin).get("n_ctx_validated"))'; }
length new.gguf
zerope quantize new.gguf small.gguf --type BF16 -q | grep dropped
length small.gguf
zerope quantize new.gguf small.gguf --type BF16 --json -q |
    python3 "$TOOLS/fields.py" evidence_dropped=False validated_length_dropped=True
zerope quantize small.gguf again.gguf --type Q8_0 -q | grep dropped
