# Lines of progress end without a blank, and a stage that comes again says which round it is.
# timeout: 180
export ZEROPE_THREADS=1
stock="$DATA/arch/gguf/gguf-llama-yarn.gguf"
head -c 20000 "$DATA/prose.txt" >text.txt
zerope evaporate "$stock" -f text.txt -c 32 --budget-kl 0.00001 -o new.gguf -v 2>err >/dev/null
grep -c ' of ' err >n; test "$(cat n)" -gt 4 && echo lines
grep -c ' $' err
grep -o 'held-out windows.*of 32' err | sed 's/: .* of/: N of/'
