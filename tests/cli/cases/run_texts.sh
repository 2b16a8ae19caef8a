# group: model
# timeout: 120
# Raw completion, the same with JSON and from a pipe; stop texts, chat template, seeds.
zerope run "$SMOLLM2" -p 'The capital of France is' -n 8 --exact -q >a; cat a
echo -n 'The capital of France is' | zerope run "$SMOLLM2" -n 8 --exact -q | cmp - a && echo same
zerope run "$SMOLLM2" -p 'The capital of France is' -n 8 --exact --json >b.json 2>/dev/null
python3 "$TOOLS/fields.py" text 'ids[]' reason=length n_prompt=5 'timings{}' <b.json
python3 -c 'import json; a = open("a").read(); t = json.load(open("b.json"))["text"]
print(a.rstrip("\n") == t.rstrip("\n"))'
zerope run "$SMOLLM2" -p 'The capital of France is' -n 8 --exact --stop Paris --json 2>/dev/null |
    python3 "$TOOLS/fields.py" reason=stop 'text= '
zerope run "$SMOLLM2" --chat --system 'Be brief.' -p 'Say hi.' -n 4 --json 2>/dev/null |
    python3 "$TOOLS/fields.py" text timings
for i in 1 2; do zerope run "$SMOLLM2" -p 'Once' -n 6 --temp 1 --seed 7 -q; done >c
test "$(sort -u <(head -c $(($(wc -c <c) / 2)) c) | wc -c)" -gt 0 && echo seeded
