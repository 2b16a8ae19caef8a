# Ids between blanks or single commas, in brackets or without; anything else is named.
try() { zerope detokenize "$DATA"/arch/gguf/gguf-qwen2.gguf -p "$1" 2>err; echo "|$? $(head -1 err)"; }
for good in '72 73' '72,73' ' 72 , 73 ' '[72,73]' '[72, 73] ' '[]' '' ' ' $'[72,\n73]\n' '[72 73]'; do
    try "$good"
done
for bad in '72,,73' ',72' '72,' '[72,73' '[72,' '[' '[72,]' '72]' '72,73]' '[72]73' '[72][73]' '[[72]]' \
    '[72]]' '72 -3' '7.5' '72;73' '72[73'; do
    try "$bad"
done
zerope logits "$DATA"/arch/gguf/gguf-qwen2.gguf --ids '1,,2' 2>&1 | head -1
