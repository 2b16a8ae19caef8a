# The seed without --seed is 1, and 0 stands for it; another one asks other retrieval prompts.
zerope scan --help | tr -s ' \n' ' ' | grep -o 'heads (0: the default)'
zerope scan --help --json | python3 -c 'import json, sys
print(*(o["default"] for o in json.load(sys.stdin)["options"] if o["name"] == "seed"))'
scan() { zerope scan "$DATA"/arch/gguf/gguf-llama-yarn.gguf -f "$DATA"/prose.txt -c 512 --local 64 \
    -t 1 -o "$@" -q >/dev/null; }
scan none.json
for seed in 0 1 2; do
    scan $seed.json --seed $seed
    cmp -s none.json $seed.json; echo "$seed $?"
done
