# No output may be an input or another output, whatever the paths look like: exit code 2, no work.
try() { zerope "$@" 2>err </dev/null; echo "$? $(head -1 err)"; }
cp "$DATA"/arch/gguf/gguf-llama-yarn.gguf m.gguf
cp "$DATA"/prose.txt t.txt
ln -s m.gguf link.gguf
ln m.gguf hard.gguf; ln m.gguf m.svg; ln t.txt t.svg
mkdir docs; cp t.txt docs/a.txt; ln -s docs linked
cp -r "$DATA"/arch/qwen2 hf
echo '{}' >c.json
sum() { cat m.gguf t.txt docs/* hf/* c.json | cksum; }
export ZEROPE_THREADS=1
before=$(sum)
for out in m.gguf ./m.gguf link.gguf hard.gguf docs/../m.gguf "$PWD/m.gguf"; do
    zerope quantize m.gguf "$out" --type Q8_0 2>/dev/null; echo "$? quantize"
    zerope export m.gguf --to stock-gguf -o "$out" 2>/dev/null; echo "$? export"
    zerope evaporate m.gguf -f t.txt --budget-kl 1 -o "$out" 2>/dev/null; echo "$? evaporate"
done
try scan m.gguf -f t.txt -o ./t.txt
try scan m.gguf -f t.txt -o ./m.gguf
try scan m.gguf -f docs -o ./docs/a.txt
try scan m.gguf -f docs -o docs/a-scan.json
try scan m.gguf -f docs -o s.json --heatmap docs/../docs/s.svg
try verify m.gguf --base m.gguf -f docs/ --report linked/v.html
try evaporate m.gguf -f . --budget-kl 1 -o new.gguf
try scan hf -f t.txt -o hf/scan.json
try scan hf -f t.txt -o hf/config.json
try scan m.gguf -f t.txt -o s.svg --heatmap ./s.svg
try scan m.gguf -f t.txt -o s.json --heatmap ./t.svg
try scan m.gguf -f t.txt -o ./c.json --config c.json
try plan c.json --budget-kl 1 -o ./c.json
try evaporate m.gguf -f t.txt --budget-kl 1 -o o.gguf --save-scan ./o.gguf
try evaporate m.gguf -f t.txt --budget-kl 1 -o o.gguf --save-plan link.gguf
try evaporate m.gguf -f t.txt --budget-kl 1 -o o.gguf --save-scan s.json --save-plan ./s.json
try verify m.gguf --base m.gguf -f t.txt --report link.gguf
try inspect m.gguf --heatmap ./m.svg
try export hf --to hf -o ./hf/
try export m.gguf --to hf -o hf
[ "$before" = "$(sum)" ] && ls
