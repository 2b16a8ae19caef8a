# Threads change no byte of a scan, with and without local heads and Fisher information, nor of the
# plan and the model made from it.
for m in gguf-llama-yarn gguf-granite gguf-qwen3 zerope-mixed; do
    for t in 1 2 3 5; do
        zerope scan "$DATA"/arch/gguf/$m.gguf -f "$DATA"/prose.txt -c 96 -t $t -o $t.json -q >/dev/null
        cmp 1.json $t.json && echo "$m $t"
    done
done
for t in 1 2 3; do
    zerope scan "$DATA"/arch/gguf/gguf-llama-yarn.gguf -f "$DATA"/prose.txt -c 512 --local 64 -t $t \
        -o $t.json -q >/dev/null
    cmp 1.json $t.json && echo "local $t"
done
for t in 1 2 3; do
    zerope scan "$DATA"/arch/gguf/gguf-qwen3.gguf -f "$DATA"/prose.txt -c 96 --fisher -t $t \
        -o f$t.json -q >/dev/null
    cmp f1.json f$t.json && echo "fisher $t"
done
zerope plan f1.json --budget-kl 1e-5 --rank sum -o p.json | grep '^rank'
for t in 1 2 3; do
    zerope plan 1.json --budget-kl 1e-5 -t $t -o p$t.json -q >/dev/null
    cmp p1.json p$t.json && echo "plan $t"
    zerope evaporate "$DATA"/arch/gguf/gguf-granite.gguf -f "$DATA"/prose.txt -c 96 -t $t \
        --budget-kl 1e-5 -o o$t.gguf -q >/dev/null
    cmp o1.gguf o$t.gguf && echo "model $t"
done
