# Training for the hostile and the unlucky: what was found, what to do; files that stand there stay.
# glob
try() { zerope "$@" --quiet -t 1 2>err >out; echo "$? $(head -1 err)"; }
mkdir texts
for i in 1 2 3 4 5 6; do
    for k in $(seq 60); do echo "Line $k of text $i says $((k * i)) things."; done >texts/$i.txt
done
zerope corpus -f texts --train-vocab 300 --held 0.4 -o t.tokens --quiet >/dev/null
echo '{"n_layer":1,"d_model":16,"n_head":2,"d_ff":16,"n_ctx":32,"position":"rope"}' >rope.json
echo mine >m.gguf.initial
t="--corpus t.tokens --batch-rows 2"
try train --from-scratch rope.json $t --tokens 1k -o m.gguf --seed 3
cat m.gguf.initial
echo mine >free.gguf.trained
try anneal m.gguf $t --tokens 1k -o free.gguf
cat free.gguf.trained
echo "a folder of a run"
try train m.gguf $t --tokens 1k -o o.gguf --run-dir run --resume
try train m.gguf $t --tokens 1k -o o.gguf --run-dir run
try train m.gguf $t --tokens 1k -o o.gguf --run-dir run
try train m.gguf $t --tokens 1k -o o.gguf --run-dir run --resume --learning-rate 0.01
try train m.gguf $t --tokens 2k -o o.gguf --run-dir run --resume
rm run/step-* run/latest
try train m.gguf $t --tokens 1k -o again.gguf --run-dir run --resume
cmp o.gguf again.gguf
echo "[" >run/run.json
try train m.gguf $t --tokens 1k -o again.gguf --run-dir run --resume
echo "numbers"
try train m.gguf $t --tokens 10k -o bad.gguf --learning-rate 10
try train m.gguf $t --tokens 1k -o bad.gguf -c 33
try train m.gguf $t --tokens 1k -o bad.gguf --micro-batches 4
try anneal m.gguf $t --tokens 1k -o bad.gguf --begin 99
try anneal free.gguf $t --tokens 1k -o bad.gguf
ls
