# group: model
# Invalid UTF-8, lines that are not JSON, ids that are none or too large.
try() { "$@" 2>err; echo "$? $(head -1 err)"; }
printf 'abc\377def' | try zerope tokenize "$SMOLLM2"
printf '"a"\n{\n' | try zerope tokenize "$SMOLLM2" --jsonl
printf '"a"\n5\n' | try zerope tokenize "$SMOLLM2" --jsonl
try zerope detokenize "$SMOLLM2" -p '1 2 x'
try zerope detokenize "$SMOLLM2" -p '1 2 -3'
try zerope detokenize "$SMOLLM2" -p '99999999'
echo '[1, "x"]' | try zerope detokenize "$SMOLLM2" --jsonl
try zerope tokenize "$SMOLLM2" --jsonl -p x
