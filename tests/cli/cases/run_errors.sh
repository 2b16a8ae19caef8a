# group: model
# timeout: 120
# Empty prompt, a prompt longer than the context, invalid UTF-8, a full output.
try() { "$@" 2>err </dev/null; echo "$? $(head -1 err)"; }
try zerope run "$SMOLLM2" -p ''
: >empty; try zerope run "$SMOLLM2" -f empty
try zerope run "$SMOLLM2" -p 'one two three four five six seven eight nine ten' -c 4 -n 2
printf 'abc\377' >bad.txt; try zerope run "$SMOLLM2" -f bad.txt
zerope run "$SMOLLM2" -p 'Once' -n 20 >/dev/full 2>err; echo "$? $(grep error: err)"
try zerope run "$SMOLLM2" -p x --stop ''
try zerope run "$SMOLLM2" --chat --chat-template missing.jinja -p x
