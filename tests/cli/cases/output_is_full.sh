# A failed write to standard output is a run error, never silence.
# stderr: zerope: error: write error on standard output: No space left on device
zerope help >/dev/full
echo "exit $?"
zerope version --json >/dev/full
echo "exit $?"
