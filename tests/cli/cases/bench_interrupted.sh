# timeout: 180
# Ctrl-C in bench: exit 130, and the rows measured so far as JSON, as a table and as a picture.
export ZEROPE_THREADS=1
m="$DATA/arch/gguf/gguf-qwen2.gguf" many=1$(printf ',1%.0s' {1..200})
# "left" stands in the second line of progress, after 5 s
stopped() { "$TOOLS/interrupt.py" stderr left bash -c 'exec zerope bench "$@" >out' - \
    "$m" -p 8 -n 4 -r 4 -npl $many "$@"; }
stopped --json -v -o speed.svg
python3 -c 'import json
d = json.load(open("out"))
print([r["test"] for r in d["rows"]][:2], 2 < len(d["rows"]) < 202, d["interrupted"])'
grep -q '<title>decode, depth' speed.svg && echo drawn
stopped -v
tr -s ' ' <out | grep -o -m 2 -e '^ prefill 0 1' -e '^ decode 0 1'
grep '^interrupted' out | tr -s ' '
