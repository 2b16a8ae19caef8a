#!/usr/bin/env bash
# test_dist: several processes on this machine: the same bits as one, and no process outlives
# another that is lost.
# Usage: test_dist.sh PROGRAM MODULE MPIRUN
set -euo pipefail
program=$(realpath "$1") module=$(realpath "$2") mpirun=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" # where processes that may be lost leave their numbers
fail() { echo "$*"; exit 1; }
command -v "$mpirun" >/dev/null || fail "no mpirun: scripts/setup installs mpi-default-dev"

start() { # SECONDS PROCESSES ARGUMENT...
  local seconds=$1 n=$2
  shift 2
  timeout -k 5 "$seconds" "$mpirun" --oversubscribe --allow-run-as-root -n "$n" "$@" </dev/null
}

# One that has ended, but that nobody has asked about yet, does not.
runs() { grep -qs '^State:[[:space:]]*[^ZX]' "/proc/$1/status"; }

ldd "$program" | grep -q libmpi && fail "the program loads MPI although it may not need it"

"$program" single - what >"$folder/single"
grep -q '^nan 0*1$' "$folder/single" || fail "no maximum: $(cat "$folder/single")"
for n in 1 2 4; do
  start 120 "$n" "$program" mpi "$module" what >"$folder/$n"
  diff "$folder/single" "$folder/$n" || fail "$n processes compute something else than one"
done
echo "same bits: 1, 2 and 4 processes"

# Its own way to the module: beside itself, as in a build folder.
mkdir "$folder/bin"
cp "$program" "$folder/bin/program"
cp "$module" "$folder/bin/"
start 120 2 "$folder/bin/program" mpi - what >"$folder/found"
diff "$folder/single" "$folder/found" || fail "the module beside the program is another"
"$folder/bin/program" mpi "$folder/nothing.so" what 2>"$folder/log" && fail "no module is good"
grep -q 'no such module' "$folder/log" || fail "$(cat "$folder/log")"

# Each ends with an error, and nothing is left running. 30 s: the timeout is 2 s.
for how in kill stop leave abort; do
  begin=$SECONDS code=0
  start 60 3 "$program" mpi "$module" $how >"$folder/$how" 2>&1 || code=$?
  [ $code != 0 ] || fail "$how: $(cat "$folder/$how")"
  [ $((SECONDS - begin)) -lt 30 ] || fail "$how: takes $((SECONDS - begin)) s"
  ! grep -E 'noticed nothing|still in step|waited for' "$folder/$how" || fail "$how: see above"
  [ "$(find "$folder" -name 'pid.*' | wc -l)" = 3 ] || fail "$how: not all three were started"
  for file in "$folder"/pid.*; do
    for ((wait = 0; wait < 50; wait++)); do runs "${file##*.}" || break; sleep 0.1; done
    ! runs "${file##*.}" || fail "$how: process ${file##*.} is left"
  done
  rm "$folder"/pid.*
  echo "$how: ends within $((SECONDS - begin)) s, exit code $code"
done
# Who is not killed by mpirun says which call has failed.
for how in stop leave; do
  grep -q 'sum failed in process [01] of 3 (MPI_Iallgather: another process did not come' \
    "$folder/$how" || fail "$how: $(cat "$folder/$how")"
done
