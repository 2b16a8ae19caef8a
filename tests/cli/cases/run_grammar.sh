# Answers by a schema, given as text or file, and by a grammar; each line of --parallel, chat.
M="$DATA/arch/llama"
schema='{"type":"object","properties":{"name":{"type":"string","maxLength":5},"n":{"type":"integer","minimum":7,"maximum":12}},"required":["name","n"],"additionalProperties":false}'
check='import json, sys
v = json.loads(sys.stdin.read())
print(sorted(v), len(v["name"]) <= 5, 7 <= v["n"] <= 12)'
zerope run "$M" -p 'the hen' -q -j "$schema" | python3 -c "$check"
echo "$schema" >schema.json
for seed in 1 2 3; do
    zerope run "$M" -p 'the hen' -q --temp 2 --seed $seed --json-schema schema.json |
        python3 -c "$check"
done
zerope run "$M" -p 'the hen' -q -j "$schema" --json |
    python3 "$TOOLS/fields.py" text 'ids[]' reason=end
printf 'root ::= item ("-" item){2}\nitem ::= [a-c]{3}\n' >items.gbnf
zerope run "$M" -p 'the hen' -q --grammar-file items.gbnf | grep -Ec '^[abc]{3}(-[abc]{3}){2}$'
printf 'a\nb\nc\n' | zerope run "$M" -np 2 -q --grammar-file items.gbnf --temp 1 --seed 3 |
    grep -Ec '^[abc]{3}(-[abc]{3}){2}$'
zerope run "$M" -p 'the hen' -q -j "$schema" -n 3 --json | python3 "$TOOLS/fields.py" reason=length
zerope run "$M" -p 'the hen' -q -j "$schema" --draft 8 >drafted
zerope run "$M" -p 'the hen' -q -j "$schema" | cmp - drafted && echo same
