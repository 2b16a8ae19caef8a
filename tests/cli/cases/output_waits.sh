# A pipe that does not block is waited for: a slow reader gets the whole document.
zerope help --json >whole
python3 - <<'END'
import fcntl, json, os, subprocess, time

reading, writing = os.pipe()
fcntl.fcntl(writing, fcntl.F_SETFL, fcntl.fcntl(writing, fcntl.F_GETFL) | os.O_NONBLOCK)
fcntl.fcntl(writing, 1031, 4096)  # F_SETPIPE_SZ
child = subprocess.Popen(["zerope", "help", "--json"], stdout=writing)
os.close(writing)
time.sleep(0.5)
text = b""
while piece := os.read(reading, 1000):
    text += piece
print(child.wait(), text == open("whole", "rb").read())
END
