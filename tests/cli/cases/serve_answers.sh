# needs: "$BINARY" version --features --json | grep -q '"server": true'
# timeout: 120
# From the command to an answer, and out again with exit code 0.
echo '{{ messages[0].content }}' >template
zerope serve "$DATA/arch/llama" --port 0 -c 256 -np 2 --chat-template template --log-file log &
pid=$!
until grep -q ' ready ' log 2>/dev/null; do
    kill -0 $pid || exit 1
    sleep 0.1
done
url=$(sed -n 's/.* ready url=\([^ ]*\).*/\1/p' log)
python3 - "$url" <<'END'
import json, sys, urllib.request
url = sys.argv[1]
def post(path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request))
body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "ignore_eos": True}
print(post("/v1/chat/completions", body)["usage"]["completion_tokens"])
print(json.load(urllib.request.urlopen(url + "/v1/models"))["data"][0]["id"])
END
kill -TERM $pid
wait $pid
echo "exit $?"
