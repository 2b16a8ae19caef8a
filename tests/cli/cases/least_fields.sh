# The fields that help calls the least of a JSON document are there when only what is required is
# given; ppl --base adds those its help names.
# timeout: 180
export ZEROPE_THREADS=1
m="$DATA/arch/gguf/gguf-qwen2.gguf" t="$DATA/prose.txt"
fields() { zerope "$1" --help --json | python3 -c 'import json, re, sys
print(re.sub(r"\{[^}]+\}", "", json.load(sys.stdin)["fields"]))'; }
least() { zerope "$@" --json -q | tee doc.json | python3 "$TOOLS/fields.py" $(fields $1) |
    sed "s/^/$1 /"; }
least inspect "$m"
least logits "$m" --ids '1 2 3'
least embed "$m" --ids '1 2 3'
least ppl "$m" -f "$t" -c 64 --windows 2
grep -c -e '"kl_' -e '"top1_agree"' doc.json
zerope ppl --help | tr -s ' \n' ' ' | grep -o 'With --base [^.]*'
zerope ppl "$m" -f "$t" -c 64 --windows 2 --base "$m" --json -q |
    python3 "$TOOLS/fields.py" kl_mean kl_p99 kl_max top1_agree
least bench "$m" -p 8 -n 4 -r 1
least scan "$m" -f "$t" -c 64 -o s.json
least plan s.json --budget-kl 1 -o p.json
least evaporate "$m" -f "$t" -c 64 --budget-kl 1 -o o.gguf --plan p.json --windows 2
least verify o.gguf --base "$m" -f "$t" -c 64 --budget-kl 1
least export o.gguf --to gguf -o e.gguf
least quantize o.gguf q.gguf --type F16
head -c 9000 "$t" >t2.txt
least corpus -f "$t" -f t2.txt --train-vocab 300 -o c.tokens
zerope corpus -f "$t" -f t2.txt --tokenizer "$m" -o m.tokens -q >/dev/null
least train "$m" --corpus m.tokens --tokens 64 --batch-rows 2 --run-dir run -o t.gguf
least report run
least probe "$m" --corpus m.tokens
least doctor --quick
least version
least completion bash
least help
