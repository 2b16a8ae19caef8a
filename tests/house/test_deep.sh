#!/usr/bin/env bash
# test_deep.sh: bench/deep answers each request with a number, goes back to where it was, and
# refuses what is no request or no usage.
# Usage: test_deep.sh DEEP
set -euo pipefail
deep=$1
data=$(cd "$(dirname "$0")/../data" && pwd)
model=$data/arch/gguf/gguf-qwen2.gguf
failed=0
check() { # CODE PATTERN REQUESTS WORDS...
    local code=0 wanted=$1 pattern=$2 requests=$3 out
    shift 3
    out=$(printf '%b' "$requests" | timeout 60 "$deep" "$@" 2>&1 | tr '\n' ' ') || code=$?
    if [ "$code" != "$wanted" ] || ! grep -qE -- "$pattern" <<<"$out"; then
        printf 'deep %s: exit code %s, expected %s and "%s":\n%s\n' "$*" "$code" "$wanted" \
            "$pattern" "$out"
        failed=1
    fi
}
s='[0-9]+\.[0-9]{9}'
for type in f32 bf16 q8; do
    check 0 "^$s $s 64 $s $s 100 $s \$" \
        'fill 150\ndecode 3\ncut 64\nfill 64\ndecode 70\ncut 100\nfill 100\n' \
        "$model" "$type" 200 1
    # the same bytes where tokens were taken back
    check 0 "^([0-9]+) $s \\1 \$" 'bytes\ndecode 90\nbytes\n' "$model" "$type" 200 1
done
check 0 '^[0-9]+\.[0-9]{3} $' 'read\n' "$model" bf16 64 2
check 0 '^$' '' "$model" q8 64 1
check 1 'deep: fill: more tokens than the context has room for' 'fill 60\nfill 5\n' "$model" q8 64 1
check 1 'deep: decode: more tokens' 'decode 65\n' "$model" q8 64 1
check 1 'deep: cut: there are fewer tokens' 'fill 4\ncut 5\n' "$model" q8 64 1
for request in '' fill 'fill ' 'fill -1' 'fill x' 'fill 1 ' 'fill 1x' 'fill  1' 'fills 1' 'read 1' \
    ' read' READ 'decode 4294967296' "fill $(printf '%099d' 1)"; do
    check 1 'expected fill N, decode N, cut N, bytes or read' "$request\n" "$model" q8 64 1
done
check 1 'no-such-file' '' no-such-file q8 64 1
check 2 'usage: deep' ''
check 2 'usage: deep' '' "$model" q8 64
check 2 'usage: deep' '' "$model" q8 64 1 more
check 2 "KV type: found 'f16', expected f32, bf16 or q8" '' "$model" f16 64 1
for count in '' 0 -1 1.5 1s 4294967296; do
    check 2 'N_CTX: found' '' "$model" q8 "$count" 1
    check 2 'THREADS: found' '' "$model" q8 64 "$count"
done
exit $failed
