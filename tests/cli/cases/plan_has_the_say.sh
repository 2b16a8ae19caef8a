# With --plan nothing is measured to choose: options that would choose are refused, by flag only.
try() { zerope evaporate "$DATA"/arch/gguf/gguf-qwen2.gguf -f "$DATA"/prose.txt -c 64 "$@" 2>err -q \
    >/dev/null; echo "$? $(head -1 err)"; }
export ZEROPE_THREADS=1
try --budget-kl 1 -o o.gguf --windows 2 --save-plan p.json
for o in --uniform --uniform-slow --layers '--local 64' '--scan s.json' '--save-scan s.json' \
    '--rank sum'; do
    try --budget-kl 1 -o o2.gguf --plan p.json $o
done
ls
try --budget-kl 1 -o o2.gguf --plan p.json --windows 2 --uniform=false --no-fold
ZEROPE_LAYERS=1 try --close-all -o o2.gguf --plan p.json --windows 2
cp p.json s.json
try --budget-kl 1 -o o3.gguf --scan s.json
sed 's/zerope-plan/zerope-scan/; s/"version": 1/"version": 2/' p.json >s.json
try --budget-kl 1 -o o3.gguf --scan s.json
sed 's/"used": [0-9]*/"used": 0/' p.json >p2.json
try --budget-kl 1 -o o3.gguf --plan p2.json
ls o3.gguf 2>/dev/null
zerope run m -p x -t 257 2>&1 | head -1
