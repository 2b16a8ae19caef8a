# Position gates and a structure head: added to a model, trained alone, measured; what cannot be.
export ZEROPE_THREADS=1
mkdir texts
for i in 1 2 3 4 5 6 7 8; do
    for k in $(seq 25); do
        printf '# Part %d\n\nLine %d of text %d.\n\n- one %d\n- two\n\n' $k $k $i $((k * i))
    done >texts/$i.md
done
for k in $(seq 60); do echo "A line of plain text, number $k."; done >texts/plain.txt
zerope corpus -f texts --train-vocab 300 --held 0.4 -o t.tokens --quiet >/dev/null
echo '{"n_layer":4,"d_model":32,"n_head":4,"n_kv":2,"d_ff":32,"n_ctx":64,"position":"rope"}' >c.json
zerope train --from-scratch c.json --corpus t.tokens --batch-rows 4 --tokens 4k -o m.gguf -q \
    >/dev/null
zerope train m.gguf --position-gate --structure-head --head-size 2 --learn parts --corpus t.tokens \
    --batch-rows 4 --tokens 4k --learning-rate 0.02 -o parts.gguf --json 2>warnings >parts.json
grep -e warning warnings
zerope inspect parts.gguf --json >file.json
zerope inspect parts.gguf --tensors --json | grep -c -e pos_gate -e struct_
zerope probe parts.gguf --against m.gguf --corpus t.tokens --lengths 32,64 --cases 0 --structure \
    --json >probe.json
python3 - <<'PY'
import json
train, file, probe = (json.load(open(f"{f}.json", encoding="utf-8"))
                      for f in ("parts", "file", "probe"))
print(train["model"], file["arch"], file["structure_head"]["layers"],
      [layer.get("position_gate") for layer in file["position"]])
of = train["structure"]
print(of["parameters"], of["tagged"]["heading"] > 100, of["tagged"]["list"] > 200,
      0 <= of["unstructured_tokens"] < of["tokens"], 0 < of["tag_loss"] < 3)
rows = {(row["tokens_of"], row["length"]): row for row in probe["structure"]}
print(len(rows), rows["boundary", 64]["tokens"] > 0, rows["boundary", 64]["accuracy_change"] is not None,
      [row["type"] for row in probe["detectors"]][0], len(probe["detectors"]))
PY
ls *.tmp.* 2>/dev/null
# With positions taken out, and from nothing.
zerope anneal m.gguf --structure-head --head-size all --corpus t.tokens --batch-rows 4 --tokens 2k \
    -o free.gguf -q --json 2>/dev/null | python3 "$TOOLS"/fields.py model=m.gguf structure{} closed=32
zerope train --from-scratch c.json --position-gate --corpus t.tokens --batch-rows 4 --tokens 2k \
    -o new.gguf -q --json 2>/dev/null | python3 "$TOOLS"/fields.py model=c.json
try() { zerope "$@" --corpus t.tokens --tokens 2k -o no.gguf 2>err >out; echo "$? $(head -1 err)"; cat out; }
try train parts.gguf --position-gate
try train parts.gguf --structure-head
try train m.gguf --learn structure
try train m.gguf --structure-head --head-size 9
try train m.gguf --head-size all
try train m.gguf --learn heads
try anneal m.gguf --structure-head --plan plan.json
zerope export parts.gguf --to stock-gguf -o stock.gguf 2>&1 | cut -d, -f1
zerope scan parts.gguf -f texts -c 64 -o scan.json 2>&1 | cut -d: -f4
ls *.gguf*
