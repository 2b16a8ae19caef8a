# The seed without --seed is 1, and 0 stands for it; another one asks other retrieval prompts, and
# draws other labels: the text's own labels and everything else stay.
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
for seed in 1 2; do
    zerope scan "$DATA"/arch/gguf/gguf-qwen2.gguf -f "$DATA"/prose.txt -c 64 -t 1 --fisher \
        --seed $seed -o f$seed.json -q >/dev/null
done
python3 -c 'import json
one, two = (json.load(open(f"f{seed}.json")) for seed in (1, 2))
print(*(key for key in one if one[key] != two[key]), len(one["fisher"]) == len(one["gates"]))'
