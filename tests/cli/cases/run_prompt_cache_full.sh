# A disk without room for the prompt cache: exit code 4 before the prompt is computed (-v would show a
# line of progress), nothing left behind; a file that will be replaced needs room for both.
# needs: unshare -rm true
cp "$DATA/arch/gguf/gguf-llama-yarn.gguf" m.gguf
mkdir disk
cat >inside.sh <<'EOF'
mount -t tmpfs -o size=20k none disk
try() { # PROMPT OPTION...
    zerope run m.gguf -p "$1" -n 5 -c 400 -ctk q8 -v "${@:2}" 2>err >out
    echo "$? $(grep -o 'error: .*\|tokens: .*\|prompt cache.*' err | tr '\n' ' ')"
}
long=$(seq -s ' ' 60)
try "$long" --prompt-cache disk/a.kv; ls disk
try "${long:0:70}" --prompt-cache disk/a.kv; ls disk
cp disk/a.kv before.kv
try "other" --prompt-cache disk/a.kv
cmp before.kv disk/a.kv; ls disk
try "other" --prompt-cache disk/a.kv --prompt-cache-ro
EOF
unshare -rm bash inside.sh
