# group: model
# timeout: 120
# Every case of tokenize.json through --jsonl, both models, plain and special, and back again.
for model in smollm2 gemma3; do
    file=$SMOLLM2; test $model = gemma3 && file=$GEMMA3
    for kind in plain special; do
        python3 -c 'import json,sys
for case in json.load(open(sys.argv[1]))[sys.argv[2]]: print(json.dumps(case["text"]))' \
            "$DATA/tokenize.json" $model >texts
        test $kind = special && flag=--special || flag=
        zerope tokenize "$file" --jsonl $flag -f texts >ids || echo failed
        python3 -c 'import json,sys
cases = json.load(open(sys.argv[1]))[sys.argv[2]]
found = [json.loads(line) for line in open("ids")]
wrong = [c["text"] for c, f in zip(cases, found) if c[sys.argv[3]] != f]
print(sys.argv[2], sys.argv[3], "cases differ:", len(wrong) + abs(len(cases) - len(found)), wrong[:3])' \
            "$DATA/tokenize.json" $model $kind
    done
done
