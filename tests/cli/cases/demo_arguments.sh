# scripts/demo says how it is called, and refuses other words before it installs or builds anything.
mkdir scripts; cp "$ROOT"/scripts/demo "$ROOT"/scripts/demo-table scripts
printf '#!/bin/sh\necho setup was run\nexit 9\n' >scripts/setup; chmod +x scripts/setup
try() { scripts/demo "$@" >out 2>err; echo "$? $(cat out err | head -1)"; }
try --help
try 256 -h
scripts/demo --help | tail -1
for words in --ctx-size x 0 15 8193 99999 '256 0' '256 x' '256 -1' '256 101' '256 0e5' \
    '256 1 1' -- -n; do
    try $words
done
try 16 .5e-3 | sed 's/^\([0-9]*\).*/\1/'
grep -c 'setup was run' out
try 8192 100 | sed 's/^\([0-9]*\).*/\1/'
ls
