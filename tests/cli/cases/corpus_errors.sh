# What cannot become a corpus: the exit code, which file, what to do; and nothing is written.
try() { zerope corpus "$@" 2>err >out; echo "$? $(head -1 err)"; }
mkdir empty texts many
printf 'Only one text.\n' >texts/one.txt
printf 'Text.\n' >many/a.txt; printf 'Other text.\n' >many/b.txt
cp -r many bad; printf 'abc\377\n' >bad/c.txt
cp -r many twice; cp twice/a.txt twice/b.txt
m="$DATA"/arch/gguf/gguf-qwen2.gguf
try -f many -o o.tokens
try -f many -o o.tokens --tokenizer "$m" --train-vocab 300
try -f many --train-vocab 300
try --train-vocab 300 -o o.tokens
try -f empty --train-vocab 300 -o o.tokens
try -f texts --train-vocab 300 -o o.tokens
try -f twice --train-vocab 300 -o o.tokens
try -f bad --train-vocab 300 -o o.tokens
try -f missing --train-vocab 300 -o o.tokens
try -f many --train-vocab 100 -o o.tokens
try -f many --train-vocab 300 --pre nosuch -o o.tokens
try -f many --train-vocab 300 --no-held --held 0.1 -o o.tokens
try -f many --train-vocab 300 -o many/o.tokens
try -f many -f ./m.txt --train-vocab 300 -o m.txt
try -f many --train-vocab 300 -o tokenizer.gguf
try -f many --tokenizer many/a.txt -o o.tokens
try -f many --tokenizer missing.gguf -o o.tokens
try -f many --train-vocab 300 -o nowhere/o.tokens
cp "$m" small.gguf
try -f many --tokenizer small.gguf -o small.gguf
cmp "$m" small.gguf; ls
