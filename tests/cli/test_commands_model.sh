#!/bin/bash
# test_commands_model.sh: the cases on the real models (smollm2-135m-instruct, gemma3-270m).
exec python3 "$(dirname "$0")/run.py" "$1" --group model
