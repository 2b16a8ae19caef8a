# group: model
# timeout: 300
# Perplexity of a short text, of a folder, against itself (KL 0), and too short a text.
mkdir docs; head -c 6000 "$DATA/prose.txt" >docs/a.txt; head -c 9000 "$DATA/prose.txt" | tail -c 3000 >docs/b.txt
zerope ppl "$SMOLLM2" -f docs/a.txt -c 256 --windows 2 --json -q | python3 "$TOOLS/fields.py" tokens nll ppl 'buckets[]'
zerope ppl "$SMOLLM2" -f docs -c 256 --windows 2 --base "$SMOLLM2" --json -q >kl.json
python3 "$TOOLS/fields.py" kl_mean kl_p99 top1_agree <kl.json
python3 -c 'import json; d = json.load(open("kl.json")); print(abs(d["kl_mean"]) < 1e-9, d["top1_agree"])'
echo 'too short' >short.txt
zerope ppl "$SMOLLM2" -f short.txt -c 256 2>err; echo "exit $?"
