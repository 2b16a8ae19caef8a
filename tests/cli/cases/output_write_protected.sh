# An existing output that is write-protected is told before the work, and so is the model that
# verify would write into. Root may write everywhere, so it becomes another user.
cp "$(readlink -f "$(command -v zerope)")" z
chmod 777 .
as_user() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; else "$@"; fi; }
try() { as_user ./z "$@" 2>&1 </dev/null >out | head -1; cat out; }
echo old | tee o.gguf m.gguf s.json >r.html
chmod 444 o.gguf m.gguf s.json r.html
try quantize m.gguf o.gguf --type Q8_0
try evaporate m.gguf -f t --budget-kl 1 -o o.gguf
try evaporate m.gguf -f t --budget-kl 1 -o new.gguf --save-scan s.json
try verify m.gguf --base b.gguf -f t
try verify m.gguf --base b.gguf -f t --no-write --report r.html
try verify m.gguf --base b.gguf -f t --quick
cat o.gguf m.gguf s.json r.html
