# group: model
# timeout: 300
# Ctrl-C in long work: exit 130, the old output intact, no temporary file.
echo old >scan.json
"$TOOLS/interrupt.py" stderr ' of ' zerope scan "$SMOLLM2" -f "$DATA/prose.txt" -c 64 -o scan.json -v
"$TOOLS/interrupt.py" stderr ' of ' zerope evaporate "$SMOLLM2" -f "$DATA/prose.txt" -c 64 \
    --budget-kl 0.1 -o new.gguf -v
"$TOOLS/interrupt.py" stderr ' of ' zerope ppl "$SMOLLM2" -f "$DATA/prose.txt" -c 256 -v
"$TOOLS/interrupt.py" stderr ' of ' zerope bench "$SMOLLM2" -d 4k -o speed.svg -v
cat scan.json
ls
