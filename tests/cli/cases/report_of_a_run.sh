# What report makes of a run: tables, one document, page and picture; what is no run,
# or damaged, is named.
# stderr: *: has no record of a run (run.json): expected the folder of --run-dir
# timeout: 180
export ZEROPE_THREADS=1
cp "$DATA/arch/gguf/gguf-llama-yarn.gguf" m.gguf
m=m.gguf
head -c 20000 "$DATA/prose.txt" >text.txt
head -c 9000 "$DATA/prose.txt" >text2.txt
zerope corpus -f text.txt -f text2.txt --tokenizer "$m" -o m.tokens -q >/dev/null
zerope anneal "$m" --corpus m.tokens --tokens 1280 -c 32 --batch-rows 2 --policy staged \
    --stages 4 --original "$m" --eval-every 5 --eval-windows 2 --run-dir 'a run' \
    -o new.gguf -q >/dev/null
zerope report 'a run' -o run.html | grep -v '^  [a-z_.]*  *[0-9]*  *[0-9.e-]*$'
echo "-- json"
zerope report 'a run' -o run.svg --json >doc.json
python3 "$TOOLS/fields.py" format=zerope-run last_step=20 last[] by_layer[] events[] series[] \
    options[] resumed[] <doc.json
python3 -c 'import json
d = json.load(open("doc.json"))
print(d["command"].split()[:2], d["command"].split("--run-dir")[1][:9])
for s in d["series"]:
    print(s["name"], s["steps"][0], s["steps"][-1], len(s["values"]))
print(sum(e["count"] for e in d["events"]), d["events"][0])
ends = {s["name"]: s["values"][-1] for s in d["series"]}
print("last", all(row["value"] == ends[row["name"]] for row in d["last"]))'
echo "-- files"
grep -c -e '<svg ' run.html run.svg
grep -o -e '<h2>[^<]*</h2>' -e 'layer 1, steps [^<]*' run.html
grep -c -e '<script' -e 'href=' -e 'src=' run.html
echo "-- refused"
mkdir none
zerope report none
echo "exit $?"
zerope report 'a run' -o run.gif 2>/dev/null
echo "exit $?"
zerope report 'a run' -o no/run.html 2>/dev/null
echo "exit $?"
for file in 'a run'/metrics.*; do echo damaged >"$file"; done
zerope report 'a run' -o run.html --json 2>/dev/null |
    grep -o -e '"exit": [0-9]*' -e 'a run/metrics'
