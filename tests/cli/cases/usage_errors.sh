# Each wrong command line: exit code 2, a text that says what was found, the nearest right word.
try() { zerope "$@" 2>err; echo "$? $(head -1 err)"; }
try evaporat
try frobnicate
try --model x
try run --tmp 3 m
try run -temp 3 m
try run m -m x
try run -m x m
try run m n
try run m --temp hot
try run m --temp
try run m --temp 1000
try run m -c 0
try run m -c 4x
try run m -c 99999999999999999999
try run
try run m --mode none
try run m --system x -p y
try run m -p x -f y
try run m -n 0 -p x
try run m -p x --top-p 0
try run m -p x -ctk f32 -ctv bf16
try run m -p x --exact -ctk bf16
try run m --json=maybe
try run m -p ''  -f ''
try tokenize m --temp 1
try evaporate m -f t -o o.gguf
try evaporate m -f t -o o.gguf --budget-kl 0.1 --close-all
try evaporate m -f t -o m --budget-kl 0.1
try evaporate m -f t --budget-kl 0.1
try plan -o p.json --budget-kl 1
try verify m -f t
try tokenize m --pieces --jsonl
try tokenize m --pieces --json
try bogus
try nope
try run m --bogus
try run m --nope
try export m -o x
try export m -o x --to onnx
try scan m -f t -o s.json --windows 1
try scan m -f t -o s.json --windows 2 --windows-kl 3
try quantize m
try quantize m m --type Q8_0
try quantize m o --type Q9_9
try completion tcsh
try config prin
try config print nothing
try help tokenise
try run m -p x $(printf -- '--stop s%s ' {1..65})
try inspect m -np 4097
