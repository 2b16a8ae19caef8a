# Flag before environment before config file before default; the table and the JSON agree.
cat >zerope.json <<'END'
{"threads": 2, "temp": 0.3, "run": {"temp": 0.7, "top-k": 40, "stop": ["a", "b"]}, "ctx-size": "8k"}
END
export ZEROPE_TOP_K=5 ZEROPE_JSON=
zerope config print run --config zerope.json -c 4k --top-p 0.9
zerope config print chat --config zerope.json --json | python3 -c '
import json, sys
for row in json.load(sys.stdin)["options"]:
    if row["origin"] not in ("none", "default"):
        print(row["command"], row["option"], row["value"], row["origin"], row["env"])'
ZEROPE_CONFIG=zerope.json zerope config print scan | grep ctx-size
zerope config print --json | python3 "$TOOLS/fields.py" options[]
zerope config print -t 3 | grep threads
