# What probe tells: tables for people, one JSON document, the same for any threads and batches;
# beside a base, in a mode, stretched, and for some kinds and lengths only.
# glob
# timeout: 180
export ZEROPE_THREADS=1
m="$DATA"/arch/gguf/gguf-qwen2.gguf
mkdir texts
for i in 1 2 3 4 5 6 7 8; do sed -n "$((i * 40)),$((i * 40 + 9))p" "$DATA/prose.txt" >texts/t$i.txt; done
zerope corpus -f texts --tokenizer "$m" --held 0.5 -o c.tokens -q >/dev/null
few="--lengths 64,256 --windows 4 --cases 6"
zerope probe "$m" --corpus c.tokens $few -q
echo "-- json"
zerope probe "$m" --corpus c.tokens $few --against "$DATA"/arch/gguf/zerope-alibi.gguf --json -q >a.json
python3 "$TOOLS/fields.py" model against lengths[] buckets[] probes[] distances[] <a.json
zerope probe "$m" --corpus c.tokens $few --against "$DATA"/arch/gguf/zerope-alibi.gguf --json -q \
    -t 2 -b 37 >b.json
cmp <(grep -v total_seconds a.json) <(grep -v total_seconds b.json) && echo same
see() { python3 -c 'import json, sys; d = json.load(sys.stdin)
print(d["mode"], d["rope_scaling"], d["exact"], [r["length"] for r in d["lengths"]],
      [(r["kind"], r["length"], r["cases"]) for r in d["probes"]])'; }
zerope probe "$m" --corpus c.tokens --windows 2 --cases 0 --json -q | see
zerope probe "$m" --corpus c.tokens --windows 0 --cases 3 --kinds copy,count --lengths 256 \
    --mode zero --allow-unverified-mode --rope-scaling yarn:4 --fast --json -q | see
