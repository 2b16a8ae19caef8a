# Relative paths in a scan count from where scan ran; elsewhere the failure says so, and -m and -f
# help. Other failures stay as they are.
export ZEROPE_THREADS=1
cp "$DATA"/arch/gguf/gguf-llama-yarn.gguf m.gguf
mkdir docs sub; cp "$DATA"/prose.txt docs/t.txt
zerope scan m.gguf -f docs/t.txt -c 64 -o s.json -q >/dev/null
try() { zerope plan "$@" --budget-kl 1 -o p.json -q 2>err >/dev/null; echo "$? $(head -1 err)"; }
try s.json
cd sub
try ../s.json
try ../s.json -m ../m.gguf
try ../s.json -f ../docs/t.txt
try ../s.json -m ../m.gguf -f ../docs/t.txt
try ../s.json -m none.gguf
sed 's/"version": 1/"version": 2/' ../s.json >new.json
try new.json
sed "s,\"m.gguf\",\"$PWD/none.gguf\"," ../s.json >absolute.json
try absolute.json | sed "s,$PWD,PWD,"
try none.json
echo GARBAGE >m.gguf
try ../s.json
