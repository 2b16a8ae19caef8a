# Vectors: those of the independent forward (tests/data/embeddings.json), the same from each way in,
# and of length 1; what is refused.
m="$DATA/arch/llama"
cat >compare.py <<'END'
import json, math, os, sys
case = json.load(open(os.environ["DATA"] + "/embeddings.json"))["cases"][0]
text = next(t for t in case["texts"] if t["n"] == int(sys.argv[1]))
want = (text["raw"] if "raw" in sys.argv[3:] else text)[sys.argv[2]]
doc = json.load(sys.stdin)
got = doc["embedding"]
worst = max(abs(a - b) for a, b in zip(got, want)) / max(map(abs, want))
print(doc["n_tokens"], doc["pooling"], len(got) == len(want), worst < 2e-5,
      abs(math.hypot(*got) - 1) < 1e-6)
END
export DATA
ids=$(python3 -c 'import json, os; print(*json.load(open(os.environ["DATA"] + "/embeddings.json"))["cases"][0]["ids"][:17])')
for p in last mean first; do
    zerope embed "$m" --ids "$ids" --pooling $p --exact --json | python3 compare.py 17 $p
done
zerope embed "$m" --ids "$ids" --raw --exact --json | python3 compare.py 17 last raw
zerope embed "$m" --text 'Hello there' >a
wc -lw <a | tr -s ' '
printf 'Hello there' >t.txt
for way in '-f t.txt' 't.txt' '--file t.txt' '-p Hello\ there'; do
    eval zerope embed '"$m"' $way | cmp - a && echo same
done
zerope embed "$m" - <t.txt | cmp - a && echo same
zerope embed "$m" <t.txt | cmp - a && echo same
zerope embed "$m" t.txt -b 1 -t 1 | cmp - a && echo same
try() { zerope "$@" 2>err </dev/null; echo "$? $(head -1 err)"; }
try embed "$m" --text ''
try embed "$m" --ids ''
try embed "$m" --ids '1 999'
try embed "$m" --ids '1 2' --text a
try embed "$m" --text a t.txt
try embed "$m" --ids "$ids" -c 16
try embed "$m" --text a --pooling max
