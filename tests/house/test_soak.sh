#!/usr/bin/env bash
# test_soak.sh: bench/soak runs what its usage says, and refuses what is no number or no KV type.
# Usage: test_soak.sh SOAK
set -eu
soak=$1
data=$(cd "$(dirname "$0")/../data" && pwd)
model=$data/arch/gguf/gguf-qwen2.gguf
failed=0
check() { # CODE PATTERN WORDS...
    local code=0 wanted=$1 pattern=$2 out
    shift 2
    out=$(timeout 60 "$soak" "$@" 2>&1) || code=$?
    if [ "$code" != "$wanted" ] || ! grep -q -- "$pattern" <<<"$out"; then
        printf 'soak %s: exit code %s, expected %s and "%s":\n%s\n' "$*" "$code" "$wanted" \
            "$pattern" "$out"
        failed=1
    fi
}
for type in f32 bf16 q8; do check 0 '"rounds": [1-9].*"tokens": [1-9]' "$model" 1 "$type"; done
check 0 '"rounds"' "$model" 1 q8 7
check 2 'usage: soak'
check 2 'usage: soak' "$model"
check 2 'usage: soak' "$model" 1 q8 7 more
check 2 "SECONDS: found 'abc', expected a whole number above 0" "$model" abc
for seconds in '' 0 -1 1.5 1s 99999999999999999999; do
    check 2 'SECONDS: found' "$model" "$seconds"
done
check 2 "KV type: found 'f16', expected f32, bf16 or q8" "$model" 1 f16
check 2 "KV type: found ''" "$model" 1 ''
check 2 "SEED: found 'x'" "$model" 1 q8 x
exit $failed
