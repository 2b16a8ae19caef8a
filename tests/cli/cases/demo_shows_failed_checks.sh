# A check that fails does not end scripts/demo before its table: the table names it, the exit code is
# 1. Any other failure of verify ends it. Setup, build and program are stand-ins here.
mkdir -p scripts build/release tests/data tools
cp "$ROOT"/scripts/demo "$ROOT"/scripts/demo-table scripts; cp "$DATA"/prose.txt tests/data
ln -s /bin/true scripts/setup; ln -s /bin/true tools/cmake
export PATH=$PWD/tools:$PATH ZEROPE_MODELS=$PWD
cat >build/release/zerope <<'STUB'
#!/bin/bash
case $1 in
evaporate) for word; do case $word in */evaporated.gguf) touch "$word" ;; esac; done
    echo '{"ctx": 256, "closed": 1, "total": 4, "n_layer": 2, "n_kv": 1, "layers_none": 0,
        "heads_none": 0, "kl_mean": 0.1, "kl_hi": 0.2, "budget_kl": 0.3, "ppl_before": 2,
        "ppl_after": 3, "top1_agree": 0.5}' ;;
verify) printf '{"checks": [{"name": "file probe", "value": 0, "limit": 0, "status": "pass"},
        {"name": "norms", "value": 5, "limit": 4, "status": "%s"}]}' $STATUS; exit $CODE ;;
run) cat >/dev/null; echo '{"text": "Rhine", "timings": {"prefill_tps": 2, "decode_tps": 1}}' ;;
esac
STUB
chmod +x build/release/zerope
try() { scripts/demo >out 2>err; echo "exit $?"; grep -e ^checks -e FAILED -e Rhine out; }
STATUS=fail CODE=5 try
STATUS=pass CODE=0 try
STATUS=pass CODE=3 try
ls build/demo/*
