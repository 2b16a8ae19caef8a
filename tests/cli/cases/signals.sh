# Signals while a command waits or works: it ends at once, with its code, and leaves nothing behind.
# timeout: 120
m="$DATA"/arch/gguf/gguf-qwen2.gguf
mkfifo text

# the first one counts while a FIFO has no writer yet, and while its writer is silent
wait_and() { # SIGNAL COMMAND...: starts it, lets it reach the FIFO, sends the signal
    signal=$1; shift
    env --default-signal=INT "$@" >/dev/null 2>err & child=$! # bash ignores it in the background
    sleep 1; kill -s "$signal" $child
    for i in $(seq 100); do kill -0 $child 2>/dev/null || break; sleep 0.1; done
    kill -9 $child 2>/dev/null && echo "no end"
    wait $child; echo "$? $signal $(head -1 err)"
}
for s in INT TERM HUP; do wait_and $s zerope ppl "$m" -f text -c 64; done
sleep 100 >text & writer=$!
wait_and TERM zerope scan "$m" -f text -c 64 -o s.json
wait_and INT zerope evaporate "$m" -f text -c 64 -o o.gguf --budget-kl 1
kill $writer; wait $writer # its end of the FIFO is closed
wait_and INT zerope tokenize "$m" -f text
wait_and TERM zerope tokenize "$m" -f text

# nor is a reader of standard error waited for that does not read
timeout 20 python3 - "$m" <<'END'
import os, signal, subprocess, sys, time

read, write = os.pipe()
os.set_blocking(write, False)
try:
    while os.write(write, bytes(65536)):
        pass
except BlockingIOError:
    os.set_blocking(write, True)
child = subprocess.Popen(["zerope", "tokenize", sys.argv[1], "-f", "text"], stderr=write,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
time.sleep(1)
child.send_signal(signal.SIGINT)
print(child.wait(10), "nobody reads")
END

# what must be a regular file is not waited for
cp -r "$DATA"/arch/qwen2 hf
for f in config.json tokenizer.json tokenizer_config.json; do
    mv hf/$f $f; mkfifo hf/$f
    timeout 20 zerope inspect hf >/dev/null 2>err; echo "$? $(head -1 err)"
    rm hf/$f; mv $f hf
done

# a limit of file sizes is a write error
(ulimit -f 8; zerope quantize "$m" big.gguf --type Q8_0 2>err; echo "$? $(head -1 err)")

# a model that shrinks while it is mapped
cp "$m" cut.gguf
zerope logits cut.gguf -f text >/dev/null 2>err & child=$!
exec 3>text # opens when the model is open
truncate -s 0 cut.gguf
echo hello >&3; exec 3>&-
wait $child; echo "$? $(head -1 err)"

ls
