# What is wrong with a schema or grammar is named before any work.
M="$DATA/arch/llama"
try() { zerope run "$M" -p x -n 2 -q "$@" 2>err </dev/null; echo "$? $(head -1 err)"; }
try -j '{"type":"object","properties":{"a":{"type":"string","not":{}}}}'
try -j '{"type":"strin"}'
try -j '{"type":'
try -j '{"enum":[]}'
try -j missing.json
printf 'root ::= "a"\n  b = "c"\n' >bad.gbnf
try --grammar-file bad.gbnf
try --grammar-file missing.gbnf
try --grammar-file bad.gbnf -j '{}'
try -j '{}' --ignore-eos
