# The memory of a training run is told before it is taken, and is what is counted; a run beyond what
# is granted is refused with both numbers, and writes nothing.
# stderr: *not enough memory: * are needed to train on 2 rows of 32 tokens at a time, 1.0 MiB granted (--memory)*
mkdir texts
for i in 1 2 3 4 5 6; do
    for k in $(seq 60); do echo "Line $k of text $i says $((k * i)) things."; done >texts/$i.txt
done
zerope corpus -f texts --train-vocab 300 --held 0.4 -o t.tokens --quiet >/dev/null
echo '{"n_layer":2,"d_model":64,"n_head":2,"d_ff":64,"n_ctx":32,"position":"rope"}' >c.json
t="--corpus t.tokens --batch-rows 2 --tokens 500 -q -t 1"
zerope train --from-scratch c.json $t -o m.gguf >/dev/null
zerope quantize m.gguf q.gguf --type Q4_0 -q >/dev/null
zerope train q.gguf $t --lora-rank 2 -o no.gguf --memory-plan --json >plan.json
zerope anneal q.gguf $t --lora-rank 2 -o no.gguf --memory-plan --json >anneal.json
zerope train q.gguf $t --lora-rank 2 -o o.gguf --memory 100 --json >run.json
python3 - <<'PY'
import json
plan, anneal, run = (json.load(open(f"{n}.json", encoding="utf-8"))["memory"]
                     for n in ("plan", "anneal", "run"))
for name in ("weights", "parameters", "gradients", "optimiser", "activations", "products"):
    print(name, plan["predicted"][name] == run["predicted"][name] == run["counted"][name] > 0)
print("rest", 0 <= run["counted"]["total"] - run["predicted"]["total"] < 1 << 20)
print("as told", abs(run["predicted"]["total"] - plan["predicted"]["total"]) < 1 << 10)
print("anneal", anneal["predicted"]["weights"] == plan["predicted"]["weights"])
print("available", plan["available"] > 0, "counted" in plan)
PY
zerope train q.gguf $t -o no.gguf --memory 1
echo "exit code $?"
ls
