# What cannot be measured: the exit code, and what to do.
export ZEROPE_THREADS=1
m="$DATA"/arch/gguf/gguf-qwen2.gguf
try() { zerope probe "$@" 2>err >out; echo "$? $(sed "s|$DATA|DATA|g" err | head -1)"; cat out; }
mkdir texts
head -c 3000 "$DATA/prose.txt" >texts/a.txt; head -c 7000 "$DATA/prose.txt" | tail -c 3000 >texts/b.txt
zerope corpus -f texts --tokenizer "$m" -o c.tokens -q >/dev/null
zerope corpus -f texts --tokenizer "$m" --no-held -o none.tokens -q >/dev/null
zerope corpus -f texts --train-vocab 300 -o other.tokens -q >/dev/null
try "$m"
try --corpus c.tokens
try "$m" --corpus missing.tokens
try "$m" --corpus texts/a.txt
try "$m" --corpus other.tokens | sed 's/[0-9a-f]\{16\}/HASH/g'
try "$m" --corpus none.tokens
try "$m" --corpus c.tokens --lengths 64,32
try "$m" --corpus c.tokens --lengths 16
try "$m" --corpus c.tokens --lengths 64,x
try "$m" --corpus c.tokens --lengths 64,1m
try "$m" --corpus c.tokens --lengths 32m
try "$m" --corpus c.tokens --kinds copy,riddle
try "$m" --corpus c.tokens --windows 0 --cases 0
try "$m" --corpus c.tokens --rope-scaling ntk
try "$m" --corpus c.tokens --rope-scaling linear:0.5
try "$DATA"/arch/gguf/zerope-alibi.gguf --corpus c.tokens --rope-scaling ntk:4
try "$DATA"/arch/gguf/gguf-llama-yarn.gguf --corpus c.tokens --rope-scaling ntk:4
try "$m" --corpus c.tokens --against missing.gguf
try "$m" --corpus c.tokens --mode zero
