# A prompt that was saved is not computed again, and the answer is the same; prompts that share its
# beginning; what is saved, kept and refused.
cp "$DATA/arch/gguf/gguf-llama-yarn.gguf" m.gguf
prompt=$(seq -s ' ' 60)
run() { # PROMPT OPTION...
    zerope run m.gguf -p "$1" -n 5 -c 400 -ctk q8 --json "${@:2}" 2>err |
        python3 -c 'import json, sys; d = json.load(sys.stdin); t = d["timings"]
print(d["n_prompt"], d["n_reused"], t["prefill_tokens"], t["reused_tokens"], d["ids"])'
    grep 'prompt cache\|error' err
}
run "$prompt"
run "$prompt" --prompt-cache a.kv
run "$prompt" --prompt-cache a.kv
echo "-- a longer prompt, a shorter one, one that differs, and back"
run "$prompt and more" --prompt-cache a.kv --prompt-cache-ro
cp a.kv before.kv
run "${prompt:0:70}" --prompt-cache a.kv
cmp a.kv before.kv && echo kept
run "${prompt:0:100} other" --prompt-cache a.kv
run "$prompt" --prompt-cache a.kv --prompt-cache-ro
echo "-- a short prompt, though what is saved is longer than the context"
run "${prompt:0:50}" --prompt-cache a.kv --prompt-cache-ro -c 100
run "Something else" --prompt-cache a.kv --prompt-cache-ro -c 100
cp a.kv long.kv
run "Something else" --prompt-cache long.kv -c 100
run "Something else" --prompt-cache long.kv -c 100
echo "-- nothing in common, then a file that is not there"
run "x$prompt" --prompt-cache a.kv --prompt-cache-ro
run "$prompt" --prompt-cache b.kv --prompt-cache-ro
run "$prompt" --prompt-cache b.kv --prompt-cache-ro --quiet
ls
echo "-- refused"
try() { zerope run m.gguf -p "$prompt" -n 2 -c 400 -q "$@" >out 2>err; echo "$? $(grep error: err)"; }
try --prompt-cache-ro
try --prompt-cache a.kv --parallel 2
try --prompt-cache m.gguf
try --prompt-cache missing/a.kv
try --prompt-cache before.kv
try -ctk q8 --prompt-cache before.kv --mode zero --allow-unverified-mode
try -ctk q8 --prompt-cache before.kv -c 100
printf 'x' | dd of=before.kv bs=1 seek=6000 conv=notrunc 2>/dev/null
try -ctk q8 --prompt-cache before.kv
