# group: model
# timeout: 120
# Ctrl-C while text comes and while a long prompt is read: exit 130, JSON of what came so far.
"$TOOLS/interrupt.py" stdout '' zerope run "$SMOLLM2" -p 'Once upon a time' -n 4000 --ignore-eos
python3 -c 'print("word " * 3500)' >long.txt
"$TOOLS/interrupt.py" stderr 'of 3501' zerope run "$SMOLLM2" -f long.txt -n 1 -v -b 64
ls
