# group: model
# timeout: 120
# Ctrl-C while text comes and while a long prompt is read: exit 130, JSON of what came so far. What
# is left is told of the whole prompt, with a prompt cache too. Of many prompts what was answered.
"$TOOLS/interrupt.py" stdout '' zerope run "$SMOLLM2" -p 'Once upon a time' -n 4000 --ignore-eos
python3 -c 'print("word " * 3500)' >long.txt
for cache in '' '--prompt-cache long.kv'; do
    "$TOOLS/interrupt.py" stderr 'of 3501' bash -c 'exec zerope run "$@" 2> >(tee err >&2)' - \
        "$SMOLLM2" -f long.txt -n 1 -v -b 64 $cache
    grep error err | sed 's/after [0-9]*/after some/'
done
# Many prompts: the second has ended, the first has not.
printf 'Once upon a time\nThe capital of France is\n' >lines
many() { "$TOOLS/interrupt.py" stderr ': 1 of 2' bash -c 'exec zerope run "$@" >out' - \
    "$SMOLLM2" -f lines -np 2 -n 4000 --ignore-eos --stop Paris -v "$@"; }
many
cat -E out
many --json
python3 -c 'import json
d = json.load(open("out"))
print([(a["line"], a["text"], a["reason"]) for a in d["answers"]], d["interrupted"])'
ls
