# A full context refuses the line with a hint and keeps the conversation; a script hears of it by
# the exit code in the end. Unknown commands never reach the model.
# timeout: 180
export ZEROPE_THREADS=1
echo '{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}' >chat.jinja
chat() { zerope chat "$DATA/arch/gguf/zerope-partial.gguf" --chat-template chat.jinja "$@" 2>err; }
roles='import json,sys; print([m["content"][:5] for m in json.load(sys.stdin)["messages"]])'
long=$(printf 'x%.0s' {1..40})
printf '%s\n' "hi" "$long" "ho" | chat -c 32 -n 2 --json >doc; echo "exit $?"
python3 -c "$roles" <doc
grep -v prefill err
printf '%s\n' "$long" /reset "hi" | chat -c 32 -n 2 --json | python3 -c "$roles"
printf '/rest\n' | chat --json | python3 -c "$roles"
printf '/rest\n' | chat -q >/dev/null; echo "exit $?"
cat err
printf ' /etc\n' | chat -n 1 --json | python3 -c "$roles"
printf 'hi\n' | chat -c 16 >/dev/null; grep full err
