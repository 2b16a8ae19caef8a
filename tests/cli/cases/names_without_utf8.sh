# File names are bytes: reports show what is not UTF-8 as U+FFFD, and no work is lost for it.
export ZEROPE_THREADS=1
m=$'caf\xe9.gguf' t=$'t\xe9.txt' o=$'o\xe9.gguf'
cp "$DATA"/arch/gguf/gguf-llama-yarn.gguf "$m"
cp "$DATA"/prose.txt "$t"
show() { python3 -c '
import json, sys
doc = json.load(sys.stdin)
print([doc[k] for k in sys.argv[1:]])' "$@"; }
zerope scan "$m" -f "$t" -c 64 -o $'s\xe9.json' --json -q | show model text
zerope plan $'s\xe9.json' -m "$m" -f "$t" --budget-kl 1 -o p.json --json -q | show model text
zerope evaporate "$m" -f "$t" -c 64 --budget-kl 1 -o "$o" --windows 2 --json -q | show file
zerope verify "$o" --base "$m" -f "$t" -c 64 --json -q --report $'r\xe9.html' --quick |
    show model base text
zerope export "$o" --to stock-gguf -o $'x\xe9.gguf' --json -q | show files
zerope quantize "$m" $'q\xe9.gguf' --type Q8_0 --json -q | show grown
zerope ppl "$m" --base "$m" -f "$t" -c 64 --json -q | show base
zerope inspect $'none\xe9.gguf' --json 2>/dev/null | show error
