# A failed write ends run -np as it ends run of one prompt: the cause and its exit code, and a
# summary of what was done.
cd "$DATA"/arch/gguf
lines() { for i in {0..149}; do echo "abc $i"; done; }
told() {
    echo "$1 $2: $(grep -o 'error: .*' "$err")"
    grep -o '^zerope: [^:]* at a time' "$err" || :
}
run() { zerope run gguf-qwen2.gguf -n 4 --ignore-eos "$@" 2>"$err"; }
err=$OLDPWD/err code=$OLDPWD/code
lines >"$OLDPWD/lines"; lines=$OLDPWD/lines
for words in '-p abc' "-f $lines -np 8" "-f $lines -np 8 --json"; do
    what=${words/$lines/lines}
    run $words >/dev/full; told $? "full, $what"
    run $words >&-; told $? "closed, $what"
    { sleep 0.5; run $words; echo $? >"$code"; } | true; told "$(cat "$code")" "no reader, $what"
done
