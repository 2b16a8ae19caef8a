# Not a model: missing, folder, empty, text, a GGUF that ends early; exit code 3 and the reason.
# glob
try() { zerope inspect "$@" 2>err; echo "$? $(head -1 err)"; }
mkdir folder; : >empty.gguf; echo 'hello, I am a text' >text.gguf; printf 'GGUF\3\0\0\0\5' >short.gguf
try missing.gguf
try folder
try empty.gguf
try text.gguf
try short.gguf
zerope inspect text.gguf --json 2>err | python3 -c 'import json,sys; print(json.load(sys.stdin)["error"]["code"])'
