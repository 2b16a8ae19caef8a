# group: model
# timeout: 120
# The likeliest next token and the greedy continuation of a known prompt.
zerope logits "$SMOLLM2" -p 'The capital of France is' --exact -n 4 --json >out.json
python3 "$TOOLS/fields.py" n_tokens=5 nll_mean 'top[]' 'greedy[]' <out.json
python3 -c 'import json
d = json.load(open("out.json"))
print(len(d["top"]), d["top"][0]["id"], d["greedy"])'
zerope logits "$SMOLLM2" --ids '504 3575 282 4649 314' --top 3 --json | python3 -c 'import json,sys
d = json.load(sys.stdin)
print(len(d["top"]), d["top"][0]["id"])'
zerope logits "$SMOLLM2" -p '' 2>err; echo "$? $(head -1 err)"
