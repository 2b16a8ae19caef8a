# What is wrong with a file is said with its name: weights, tokenizer, template.
# timeout: 180
export ZEROPE_THREADS=1
stock="$DATA/arch/gguf/gguf-llama-yarn.gguf"
try() { zerope "$@" 2>err >/dev/null; echo "$? $(grep error: err | cut -c -110)"; }
cp "$stock" named.gguf
try tokenize named.gguf --pre smallm -p x
try template named.gguf - <<<'[{"role": "user", "content": "hi"}]'
try chat named.gguf <<<hi
# The last tensor's last values become NaN.
python3 -c 'import struct
data = bytearray(open("named.gguf", "rb").read())
data[-64:] = struct.pack("<f", float("nan")) * 16
open("damaged.gguf", "wb").write(data)'
try logits damaged.gguf --ids 1,2
