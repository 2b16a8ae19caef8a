# needs: "$BINARY" version --features --json | grep -q '"server": true'
# Nothing but errors, one a line.
# Options that make no sense are refused before anything is served.
try() {
    zerope serve "$@" 2>&1 | grep -m1 '^zerope: error'
}
MODEL=$DATA/arch/llama
try
try nowhere.gguf --port 0
try "$MODEL" --port 65536
try "$MODEL" --port 0 --tls-cert a.pem
try "$MODEL" --port 0 --canary-stages 5,1
try "$MODEL" --port 0 --canary-stages many
try "$MODEL" --port 0 --sla short
try "$MODEL" --port 0 --api-key-file nowhere
echo short >keys
try "$MODEL" --port 0 --api-key-file keys
try "$MODEL" --port 0 --prefix llm
try "$MODEL" --port 0 --origin page.example
try "$MODEL" --port 0 --metrics-compat what
try "$MODEL" --port 0 --kv-tokens 100 --kv-memory 100
try "$MODEL" --port 0 --position-mode quarter
try "$MODEL" --port 0 --log-file no/such/folder
