# Annealing with a plan closes what the plan closes, by every policy that has an order.
mkdir texts
for i in 1 2 3 4 5 6 7 8; do
    for k in $(seq 90); do echo "Line $k of text $i says $((k * i)) things."; done >texts/$i.txt
done
zerope corpus -f texts --train-vocab 300 --held 0.4 -o t.tokens --quiet >/dev/null
echo '{"n_layer":2,"d_model":32,"n_head":4,"n_kv":2,"d_ff":32,"n_ctx":64,"position":"rope"}' >c.json
zerope train --from-scratch c.json --corpus t.tokens --batch-rows 4 --tokens 4k -o m.gguf -q -t 1 \
    >/dev/null
zerope scan m.gguf -f texts -c 64 --windows 2 --windows-kl 1 -o scan.json -q >/dev/null
zerope plan scan.json --budget-kl 0.0001 --no-fold -o plan.json -q >/dev/null
for policy in abrupt staged dropout l1; do
    zerope anneal m.gguf --policy $policy --plan plan.json --corpus t.tokens --batch-rows 4 \
        --tokens 4k -o $policy.gguf -q -t 1 --json >$policy.json
    zerope inspect $policy.gguf --json >file.json
    python3 - $policy <<'PY'
import json
import sys
plan, report = (json.load(open(f, encoding="utf-8")) for f in ("plan.json", f"{sys.argv[1]}.json"))
gates = json.load(open("file.json", encoding="utf-8"))["gates"]
by_layer = [sum(g[0] == layer for g in plan["closed_gates"]) for layer in range(2)]
print(sys.argv[1], report["closed"] == len(plan["closed_gates"]) == gates["closed"] > 0,
      report["closed_by_layer"] == by_layer)
PY
done
