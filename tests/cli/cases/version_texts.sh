# glob
zerope version
zerope --version
zerope version --json | python3 "$TOOLS/fields.py" version
zerope version --features --json | python3 "$TOOLS/fields.py" version
