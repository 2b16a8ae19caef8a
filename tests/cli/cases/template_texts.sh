# group: model
# The chat template from a file, from a pipe, with other tokens, with another template.
echo '[{"role":"user","content":"Hi <|im_end|>"}]' >chat.json
zerope template "$SMOLLM2" chat.json
zerope template "$SMOLLM2" - --no-generation-prompt <chat.json
zerope template -m "$SMOLLM2" chat.json --json | python3 "$TOOLS/fields.py" text ids[]
printf '%s' '{{ bos_token }}|{% for m in messages %}{{ m.content }}{% endfor %}|{{ eos_token }}' >t.jinja
zerope template "$SMOLLM2" chat.json --chat-template t.jinja --bos B --eos E; echo
printf '{{ messages[0] ' >broken.jinja
zerope template "$SMOLLM2" chat.json --chat-template broken.jinja 2>err; echo "exit $?"
echo '{"messages": ' >broken.json
zerope template "$SMOLLM2" broken.json 2>err; echo "exit $?"
