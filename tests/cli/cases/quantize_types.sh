# The types of the help are those of README and FORMATS; a file of each is written and read again.
m="$DATA/arch/gguf/gguf-qwen2.gguf"
listed=$(zerope quantize --help --json | python3 -c 'import json, sys
print(*next(o["choices"].split("|") for o in json.load(sys.stdin)["options"] if o["name"] == "type"))')
echo $listed
grep -o 'tensor types written | [A-Z0-9_ ]*[A-Z0-9]' "$ROOT/README.md" | cut -d'|' -f2
sed -n 's/^| \([A-Z0-9_, ]*\) | yes | yes | .*/\1/p' "$ROOT/docs/FORMATS.md" | tr -d , | xargs -n1 |
    sort | diff - <(xargs -n1 <<<"$listed" | sort) && echo "FORMATS agrees"
for type in $listed; do
    zerope quantize "$m" $type.gguf --type $type -q >report || echo "$type: $?"
    zerope logits $type.gguf --ids '1 2 3' -q >/dev/null || echo "$type: $?"
done
zerope quantize F16.gguf wide.gguf --type F32 -q | grep -A1 ^types | xargs
