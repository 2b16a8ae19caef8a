# Work beyond the length a file has evidence for, or was trained for, gets one note on stderr,
# none with --quiet, and nothing on standard output.
# timeout: 180
export ZEROPE_THREADS=1
ours="$DATA/arch/gguf/zerope-partial.gguf" stock="$DATA/arch/gguf/gguf-llama-yarn.gguf"
head -c 20000 "$DATA/prose.txt" >text.txt
try() { "$@" >out 2>err </dev/null; echo "$? $(grep -c context out) $(grep 'note: context' err)"; }
try zerope run "$ours" -p abc -n 2
try zerope run "$ours" -p abc -n 80
try zerope run "$ours" -p abc -n 2 -c 65
try zerope run "$ours" -p abc -n 2 -c 65 -q
try zerope run "$stock" -p abc -n 2 -c 65 --json
echo '{{ messages[0].content }}' >chat.jinja
try zerope chat "$ours" -c 64 --chat-template chat.jinja
try zerope chat "$ours" -c 65 --chat-template chat.jinja
try zerope logits "$stock" --ids 1,2,3
try zerope logits "$stock" --ids 1,2,3 -n 62
try zerope ppl "$stock" -f text.txt -c 64
try zerope ppl "$ours" -f text.txt -c 128
try zerope scan "$stock" -f text.txt -c 128 -o scan.json
try zerope evaporate "$stock" -f text.txt -c 128 --budget-kl 1 -o new.gguf
