#!/bin/bash
# test_commands.sh: the cases that need no real model.
exec python3 "$(dirname "$0")/run.py" "$1" --group quick
