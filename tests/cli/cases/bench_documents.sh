# The rows are those asked for, in JSON, as a table and as a picture; nonsense is refused before any
# work.
export ZEROPE_THREADS=1
m="$DATA/arch/gguf/gguf-qwen2.gguf"
zerope bench "$m" -p 8 -n 4 -d 0,1k -d 2k --batch 1,3 -r 2 --json -q -o speed.svg >doc.json
python3 "$TOOLS/fields.py" level threads=1 exact=False kv_type=bf16 ctx=2056 'rows[]' <doc.json
python3 -c 'import json
for r in json.load(open("doc.json"))["rows"]:
    print(*(r[k] for k in ("test", "depth", "batch", "tokens", "repetitions")),
          0 < r["tps_min"] <= r["tps_median"] <= r["tps_max"], 0 < r["peak_gbps"])'
grep -c '<title>decode, depth' speed.svg
zerope bench "$m" -p 0 -n4 -r1 -npl 2 --exact -q | tr -s ' ' | tail -3 |
    sed 's/^\( decode 0 2\) .*/\1 .../'
zerope bench "$m" -p 4 -n 0 -r 1 -q -o speed.png | tail -1
head -c 4 speed.png | tail -c 3; echo
try() { zerope bench "$m" -q -r 1 "$@" 2>err; echo "$? $(head -1 err)"; }
try -d 0,x
try -d 4k,64
try -d ''
try -d 1,,2
try -d 64 -c 100
try -d 16777216
try -d 99999999999
try --batch 0
try -npl 1,70000
try -p 0 -n 0
try -r 0
try -ctk f32 -ctv bf16
