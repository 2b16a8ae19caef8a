# The state of the machine: least fields, and kernels that pass their own test.
zerope doctor --quick --json -t 1 >doctor.json
python3 "$TOOLS/fields.py" 'cpu{}' 'kernels{}' 'memory{}' 'self_test{}' <doctor.json
python3 -c 'import json; print(json.load(open("doctor.json"))["self_test"]["status"])'
zerope doctor --quick -t 1 | grep -c '^self_test'
