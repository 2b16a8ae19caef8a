# Every command explains itself: usage, options with --json, examples.
for command in $(zerope help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    zerope "$command" --help >text
    echo "$command exit $? $(grep -c '^Usage: zerope' text) $(grep -c -- ' --json  ' text)" \
        "$(sed -n '/^Examples:/,$p' text | grep -c '^  zerope\|zerope completion')"
    test "$(wc -L <text)" -le 100 || echo "a line of $(wc -L <text) columns"
    zerope help "$command" | cmp - text
    zerope "$command" --help --json | python3 "$TOOLS/fields.py" name options[] examples[] >ok || cat ok
done
