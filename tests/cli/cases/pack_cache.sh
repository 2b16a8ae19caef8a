# Packed weights in the cache folder: made, used, named, turned off by flag, environment and config
# file; a damaged one is replaced; none where there is no home.
M=$DATA/arch/gguf/zerope-mixed.gguf
export XDG_CACHE_HOME=$PWD/cache
packed=$PWD/cache/zerope/packed
note()
{
    zerope logits "$M" --ids '5 6 7 8' --json -v "$@" 2>&1 >out.json |
        grep -o 'packed weights.*\|weights are packed' | sed "s|$PWD|.|"
}
echo first; note; cp out.json first.json
ls "$packed" | wc -l
echo second; note; cmp out.json first.json
echo exact; note --exact
echo off; note --no-pack-cache; cmp out.json first.json
ZEROPE_NO_PACK_CACHE=1 note
echo '{"no-pack-cache": true}' >zerope.json; note --config zerope.json
echo damaged
for file in "$packed"/*; do printf 'x' | dd of="$file" bs=1 seek=5000 conv=notrunc status=none; done
zerope logits "$M" --ids '5 6 7 8' --json 2>&1 >out.json | sed "s|$packed/[^ ]*|FILE|"
cmp out.json first.json; note
echo named
zerope doctor --quick --json -t 1 >doctor.json
python3 -c 'import json, sys; print(json.load(open("doctor.json"))["pack_cache"] == sys.argv[1])' "$packed"
echo home
unset XDG_CACHE_HOME
HOME=$PWD/home note
XDG_CACHE_HOME=relative HOME=$PWD/home note
find relative 2>/dev/null
echo none
XDG_CACHE_HOME=/dev/null note
HOME= note; cmp out.json first.json
HOME= zerope doctor --quick -t 1 | grep pack_cache
rm -r cache home
find . -name '*.packed'
