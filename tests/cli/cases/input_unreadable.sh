# Input that cannot be read or is too long ends the command with one error (and, under the
# sanitizer, without a leak).
m="$DATA"/arch/gguf/gguf-qwen2.gguf
try() { "$@" 2>err; echo "$? $(head -1 err)"; }
try zerope tokenize "$m" <&-
try zerope tokenize "$m" <.
try zerope tokenize "$m" --jsonl <&-
try zerope detokenize "$m" <.
try zerope logits "$m" <.
head -c 68000000 /dev/zero | try zerope tokenize "$m"
head -c 68000000 /dev/zero >long; try zerope tokenize "$m" -f long
