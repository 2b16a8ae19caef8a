# group: model
# timeout: 600
# Scan, plan, evaporate, verify, export with their documents, pictures and pages; at a length too
# short for anything but a test. Verification against a budget nothing can meet fails with 5.
zerope scan "$SMOLLM2" -f "$DATA/prose.txt" -c 32 --windows 2 --windows-kl 1 -o scan.json -q \
    --heatmap scan.svg --json | python3 "$TOOLS/fields.py" ctx=32 n_layer=30
head -c 5 scan.svg; echo
zerope plan scan.json --budget-kl 0.05 --uniform --no-fold -o plan.json -q --heatmap plan.png --json |
    python3 "$TOOLS/fields.py" closed total=2880 'order[]'
head -c 4 plan.png | tail -c 3; echo
zerope evaporate "$SMOLLM2" -f "$DATA/prose.txt" --budget-kl 0.05 --no-fold -c 32 \
    --plan plan.json --windows 4 -o new.gguf -q --json >evap.json
python3 "$TOOLS/fields.py" ctx=32 budget_kl=0.05 closed total=2880 kl_mean kl_hi kl_last200 ppl_before \
    ppl_after heads_none heads_local layers_none kv_bytes_per_token file=new.gguf <evap.json
python3 -c 'import json; d = json.load(open("evap.json"))
print(0 < d["closed"] < d["total"], d["kl_hi"] <= d["budget_kl"])'
zerope inspect new.gguf --json | python3 "$TOOLS/fields.py" arch=zerope-llama
zerope run new.gguf -p 'The capital of France is' -n 2 --json -q | python3 -c 'import json,sys
t = json.load(sys.stdin)["timings"]
print(t["position_done"] > 0, t["position_skipped"] > t["position_done"] / 2)'
zerope verify new.gguf --base "$SMOLLM2" -f "$DATA/prose.txt" --quick --budget-kl 0.000001 --no-write -q \
    --report page.html --json >verify.json 2>err
echo "exit $? $(grep -c 'error: verification of new.gguf failed' err) $(grep -c '<html' page.html)"
python3 "$TOOLS/fields.py" status=fail 'checks[]' <verify.json
zerope export new.gguf --to stock-gguf -o stock.gguf -q --json |
    python3 "$TOOLS/fields.py" 'files[]' 'expected_engines[]'
zerope inspect stock.gguf --json | python3 "$TOOLS/fields.py" arch=llama
zerope export new.gguf --to stock-gguf -o nowhere/stock.gguf -q 2>err; echo "exit $?"
ls | tr '\n' ' '; echo
