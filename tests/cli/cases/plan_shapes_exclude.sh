# A plan has one kind of units: any two of the four are refused before anything is opened, wherever
# they come from; one of them, alone or with --no-fold, reaches the files. An order of single gates
# excludes pair indices likewise.
try() { zerope "$@" 2>err </dev/null; echo "$? $(head -1 err)"; }
shapes=(--uniform --uniform-slow --layers '--local 64')
for i in 0 1 2 3; do
    for ((k = i + 1; k < 4; k++)); do
        try plan none.json --budget-kl 1 -o p.json ${shapes[i]} ${shapes[k]}
        try evaporate none.gguf -f none.txt --budget-kl 1 -o o.gguf ${shapes[k]} ${shapes[i]}
    done
    try plan none.json --budget-kl 1 -o p.json --no-fold ${shapes[i]}
    try evaporate none.gguf -f none.txt --close-all -o o.gguf --no-fold ${shapes[i]} -q
done
ZEROPE_LAYERS=1 try plan none.json --budget-kl 1 -o p.json --uniform
for shape in uniform uniform-slow layers; do
    try plan none.json --budget-kl 1 -o p.json --$shape --rank sum
done
ZEROPE_RANK=fisher try evaporate none.gguf -f t --budget-kl 1 -o o.gguf --uniform
try plan none.json --budget-kl 1 -o p.json --rank theta
ZEROPE_LAYERS=1 try plan none.json --budget-kl 1 -o p.json --layers=false --uniform
ZEROPE_LAYERS=1 ZEROPE_LOCAL=64 try evaporate none.gguf -f t --close-all -o o.gguf --plan p.json -q
ls
