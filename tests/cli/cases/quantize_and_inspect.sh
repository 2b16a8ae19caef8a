# group: model
# timeout: 300
# Q8_0 of a model opens again and runs; the old file survives a failure; no temporary stays.
zerope quantize "$SMOLLM2" q8.gguf --type Q8_0 --json -q | python3 "$TOOLS/fields.py" 'types{}'
zerope inspect q8.gguf --json | python3 "$TOOLS/fields.py" arch=llama
zerope run q8.gguf -p 'The capital of France is' -n 1 -q
echo keep >old.gguf
zerope quantize missing.gguf old.gguf --type Q8_0 2>err; echo "exit $?"
cat old.gguf
rm q8.gguf
"$TOOLS/interrupt.py" stderr '' zerope quantize "$GEMMA3" new.gguf --type Q4_K -v 2>/dev/null
ls
