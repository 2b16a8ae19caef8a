# group: model
# timeout: 180
# Two turns reuse what the first computed; /reset forgets; /exit ends; JSON holds the messages.
printf 'Say hi.\nAnd again.\n' | zerope chat "$SMOLLM2" -n 6 --json 2>/dev/null >two.json
python3 "$TOOLS/fields.py" 'messages[]' 'timings{}' <two.json
python3 -c 'import json
d = json.load(open("two.json"))
print([m["role"] for m in d["messages"]], d["timings"]["reused_tokens"] > 20)'
printf 'Say hi.\n/reset\n/exit\nnever read\n' | zerope chat "$SMOLLM2" -n 6 --system Brief. --json 2>/dev/null |
    python3 -c 'import json,sys; print(json.load(sys.stdin)["messages"])'
# The answer to the second turn is the one a fresh run of the whole conversation gives (same bits).
python3 -c 'import json
d = json.load(open("two.json"))
json.dump(d["messages"][:3], open("chat.json", "w"))
print(d["messages"][3]["content"], end="")' >second
zerope template "$SMOLLM2" chat.json >prompt
zerope run "$SMOLLM2" -f prompt --special -n 6 --json 2>/dev/null |
    python3 -c 'import json,sys; print(json.load(sys.stdin)["text"], end="")' | cmp - second && echo same
printf 'Say hi.\377\n' | zerope chat "$SMOLLM2" 2>err; echo "$? $(head -1 err)"
