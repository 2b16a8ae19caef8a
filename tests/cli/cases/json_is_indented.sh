# Every document of --json has the one layout: an indented object.
# timeout: 180
export ZEROPE_THREADS=1
m="$DATA/arch/gguf/gguf-llama-yarn.gguf"
head -c 20000 "$DATA/prose.txt" >text.txt
see() { name=$1; zerope "$@" --json -q >doc 2>/dev/null; echo "$name $(head -1 doc) $(sed -n 2p doc | grep -c '^ "')"; }
see inspect "$m"
see tokenize "$m" -p x
see detokenize "$m" -p 1
see logits "$m" --ids 1,2
see run "$m" -p x -n 1
see ppl "$m" -f text.txt -c 32
see scan "$m" -f text.txt -c 32 -o scan.json
see plan scan.json --budget-kl 1 -o plan.json
see evaporate "$m" -f text.txt -c 32 --budget-kl 1 -o new.gguf
see verify new.gguf --base "$m" -f text.txt
see export new.gguf --to gguf -o out.gguf
see quantize "$m" q.gguf --type Q8_0
see corpus -f text.txt --no-held --train-vocab 300 -o text.tokens
head -c 9000 text.txt >text2.txt
zerope corpus -f text.txt -f text2.txt --tokenizer "$m" -o m.tokens -q >/dev/null
see train "$m" --corpus m.tokens --tokens 64 -c 32 --batch-rows 2 --run-dir run -o t.gguf
see report run
see probe "$m" --corpus m.tokens --windows 1 --cases 0
see doctor --quick
see version
see version --features
see config print
see help
see inspect missing
