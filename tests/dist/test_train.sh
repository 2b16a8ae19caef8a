#!/usr/bin/env bash
# test_train.sh: the command train: a run that is killed at a random moment and gone on with, and 2 and
# 4 processes, write the file of an undisturbed one; a killed process stops all, and its run goes on.
# Usage: test_train.sh ZEROPE MPI_MODULE MPIEXEC
set -euo pipefail
zerope=$1 module=$2 mpiexec=$3
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
seed=${SEED:-$(($(date +%s%N) / 1000 % 100000))}
echo "seed $seed"

fail() { echo "FAILED: $*" >&2; exit 1; }
same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }

mkdir bin && cp "$module" bin/ && ln -s "$zerope" bin/zerope # the module is looked for beside it
"$zerope" corpus -f "$source/docs" --train-vocab 400 --held 0.2 -o t.tokens --quiet >/dev/null
cat >model.json <<<'{"n_layer":2,"d_model":32,"n_head":4,"n_kv":2,"d_head":8,"d_ff":64,"n_ctx":64,
  "position":"rope"}'
train() { # OUT WORDS...
    "$zerope" train --from-scratch model.json --corpus t.tokens --tokens 40k --batch-rows 8 \
        --micro-batches 4 --task-share 0.2 --save-every 7 --quiet -t 2 -o "$@" >/dev/null
}
several() { # N WORDS...
    local n=$1
    shift
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$mpiexec" --oversubscribe -n "$n" \
        bin/zerope train --from-scratch model.json --corpus t.tokens --tokens 40k --batch-rows 8 \
        --micro-batches 4 --task-share 0.2 --save-every 7 --quiet -t 1 --processes mpi "$@" \
        >several.log 2>&1
}

train whole.gguf --run-dir whole

# killed, perhaps more than once, before it is done
for try in 1 2 3 4 5; do
    resume=
    [ -e parts/run.json ] && resume=--resume # also where it was killed before the first checkpoint
    # shellcheck disable=SC2086 # one word or none
    train parts.gguf --run-dir parts $resume &
    pid=$!
    sleep "0.$(((seed * try) % 6 + 1))"
    pkill -9 -P "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null && break
done
if [ ! -e parts.gguf ]; then
    resume=
    [ -e parts/run.json ] && resume=--resume
    # shellcheck disable=SC2086 # one word or none
    train parts.gguf --run-dir parts $resume
fi
same whole.gguf parts.gguf

several 2 -o two.gguf || fail "2 processes: $(cat several.log)"
same whole.gguf two.gguf
several 4 -o four.gguf --run-dir four || fail "4 processes: $(cat several.log)"
same whole.gguf four.gguf

# what goes wrong is said, by whichever process finds it
if several 2 -o no.gguf --run-dir four; then fail "a folder that has a run was taken"; fi
grep -q 'holds the record of a run already' several.log || fail "no reason: $(cat several.log)"

# a process is lost: all stop, nothing is written, the run goes on
several 4 -o lost.gguf --run-dir lost &
pid=$!
until [ -e lost/latest ]; do sleep 0.05; done
pkill -9 -f -n "bin/zerope train .*-o lost.gguf" || true
code=0
wait "$pid" || code=$?
[ "$code" != 0 ] || fail "a process was killed and nobody noticed"
[ ! -e lost.gguf ] || fail "lost.gguf was written"
train lost.gguf --run-dir lost --resume
same whole.gguf lost.gguf
echo "all files are the same"
