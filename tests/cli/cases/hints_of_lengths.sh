# Too short, too long, too many: the message names the option that helps.
# timeout: 180
export ZEROPE_THREADS=1
m="$DATA/arch/gguf/gguf-llama-yarn.gguf"
head -c 20000 "$DATA/prose.txt" >text.txt; echo abc >short.txt
try() { zerope "$@" 2>err >/dev/null </dev/null; echo "$? $(grep error: err | sed 's,/[^ ]*/gguf,gguf,')"; }
try ppl "$m" -f short.txt -c 32
try ppl "$m" -f text.txt -c 4
try scan "$m" -f text.txt -c 4 -o scan.json
try scan "$m" -f text.txt -c 32 --local 8 -o scan.json
try scan "$m" -f text.txt -c 32 --windows-kl 8 -o scan.json
try scan "$m" -f text.txt -c 32 --windows 2 --windows-kl 3 -o scan.json
try run "$m" --chat -p x
