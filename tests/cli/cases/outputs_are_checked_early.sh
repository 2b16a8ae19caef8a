# An output that cannot be written is told before any work.
try() { zerope "$@" 2>err </dev/null; echo "$? $(head -1 err)"; }
mkdir folder; echo x >file
try scan m -f t -o nowhere/scan.json
try scan m -f t -o folder
try scan m -f t -o file/scan.json
try scan m -f t -o s.json --heatmap nowhere/s.svg
try scan m -f t -o s.json --heatmap s.gif
try bench m -o nowhere/s.svg
try bench m -o svg
try evaporate m -f t --budget-kl 1 -o nowhere/o.gguf
try evaporate m -f t --budget-kl 1 -o o.gguf --save-plan nowhere/p.json
try verify m --base b -f t --report nowhere/r.html
try quantize m nowhere/o.gguf --type Q8_0
try quantize m /dev/full --type Q8_0
ls
