# A failed write to standard output is a run error, never silence, however it reaches the file.
full() { zerope "$@" >/dev/full 2>"$err"; echo "$? $*: $(cat "$err")"; }
err=$PWD/err; cd "$DATA"/arch/gguf
full help
full version --json
full help --json
full completion bash
full config print --json
full inspect gguf-qwen2.gguf
full inspect gguf-qwen2.gguf --json
full run gguf-qwen2.gguf -p a -n 2 -q
full run gguf-qwen2.gguf -p a -n 2 -q --json
full logits gguf-qwen2.gguf -p a --json
