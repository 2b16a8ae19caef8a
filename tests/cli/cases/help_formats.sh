# Man page without a complaint of groff, Markdown equal to the committed page, JSON, completions.
zerope help --man >zerope.1
if command -v groff >/dev/null; then groff -man -Tutf8 -ww zerope.1 >man.txt; fi
head -3 zerope.1
zerope help --markdown | diff - "$ROOT/docs/COMMANDS.md" && echo "COMMANDS.md is current"
zerope help --json | python3 "$TOOLS/fields.py" version common_options[] commands[]
zerope completion bash >bash.sh && bash -n bash.sh && echo "bash ok"
zerope completion zsh | head -1
zerope completion fish | grep -c 'complete -c zerope' >count && test "$(cat count)" -gt 100 && echo "fish ok"
zerope completion zsh --json | python3 "$TOOLS/fields.py" shell=zsh script
