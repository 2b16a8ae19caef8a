# What evaporate and verify wrote into a file, and the other way round: text of either kind.
# timeout: 180
export ZEROPE_THREADS=1
stock="$DATA/arch/gguf/gguf-llama-yarn.gguf"
# stderr: zerope: error: bad.json: field budget_kl must be a number in 0..100
head -c 20000 "$DATA/prose.txt" >text.txt
zerope evaporate "$stock" -f text.txt -c 32 --budget-kl 0.00001 -o new.gguf --save-plan plan.json -q >text
grep -o '95 % upper bound [0-9.]*e-06' text | sed 's/bound .*e/bound Xe/'
section() { zerope inspect new.gguf | sed -n "/^$1/,/^\$/p" | grep -v ' kl_' |
    sed -e '/ base /s, [^ ]*/gguf, gguf,' -e '/^  \(checks\|passed\|without\)/s/ [0-9]*$/ N/'; }
section recipe; section evidence
zerope verify new.gguf --base "$stock" -f text.txt -q | head -1 | sed 's/[1-9][0-9]*/N/g'
section evidence
zerope inspect new.gguf --json | python3 "$TOOLS/fields.py" 'recipe{}' 'evidence{}'
zerope inspect "$stock" | grep -c -e ^recipe -e ^evidence
# A passing verify vouches for the mode it ran, and for no other.
tr -d '\0 \n' <new.gguf | grep -a -o '"verified_modes":[^]]*]'
for mode in full zero 'zero --allow-unverified-mode'; do
    zerope ppl new.gguf -f text.txt -c 32 --windows 2 -q --mode $mode >out 2>err; echo "$? $(cat err)"
done
# Keys that do not parse, or hold other types, show nothing and harm nothing.
spoil() { python3 -c 'import sys
data = open("new.gguf", "rb").read()
old, new = (word.encode() for word in sys.argv[1:])
assert old in data and len(old) == len(new)
open("bad.gguf", "wb").write(data.replace(old, new))' "$@"
    zerope inspect bad.gguf | grep -e ^recipe -e ^evidence -e '^  method' | tr '\n' ' '; echo "$?"; }
spoil '"method": "snap"' '"method": [null]'
spoil '"method": "snap"' '"method": "snap '
spoil '"checks": [' '"checks": {'
# The plan brings its budget.
zerope evaporate "$stock" -f text.txt -c 32 --plan plan.json -o again.gguf -q --json |
    python3 "$TOOLS/fields.py" budget_kl=1e-05
sed 's/"budget_kl": .*,/"budget_kl": -1,/' plan.json >bad.json
zerope evaporate "$stock" -f text.txt -c 32 --plan bad.json -o again.gguf -q
echo "exit $?"
