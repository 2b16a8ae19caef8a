# group: model
# timeout: 120
# Many prompts, a line each: answers are those of each line alone, in order; refusals.
printf 'The capital of France is\n\nOnce upon a time\r\nTwo and two are\n' >lines
zerope run "$SMOLLM2" -f lines -np 2 -n 8 -q
for np in 1 2 16; do zerope run "$SMOLLM2" -f lines -np $np -n 8 --json 2>/dev/null >many.$np; done
while read -r line; do
    test -n "$line" && zerope run "$SMOLLM2" -p "${line%$'\r'}" -n 8 --json 2>/dev/null
done <lines >alone
python3 - <<'END'
import json

text, alone, decoder = open("alone").read(), [], json.JSONDecoder()
while text.strip():
    document, end = decoder.raw_decode(text.lstrip())
    alone.append(document["ids"])
    text = text.lstrip()[end:]
for n in (1, 2, 16):
    document = json.load(open(f"many.{n}"))
    same = [a["ids"] for a in document["answers"]] == alone
    print(n, [a["line"] for a in document["answers"]], same, sorted(document["timings"]))
END
zerope run "$SMOLLM2" -p 'Once' -np 2 -n 2 -q
printf '\n\r\n' | zerope run "$SMOLLM2" -np 2 2>&1; echo $?
zerope run "$SMOLLM2" -f lines -np 2 -n 4 -c 4 2>&1; echo $?
zerope run "$SMOLLM2" -f lines -np 0 2>&1; echo $?
