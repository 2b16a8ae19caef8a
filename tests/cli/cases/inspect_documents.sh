# group: model
# The least fields of the document, and that the plan grows with the context.
zerope inspect "$SMOLLM2" --json | python3 "$TOOLS/fields.py" arch=llama n_layer=30 'position[]' 'memory{}'
zerope inspect "$GEMMA3" -c 32k --json | python3 "$TOOLS/fields.py" arch=gemma3 n_layer=18 'position[]' 'memory{}'
zerope inspect "$SMOLLM2" --tensors --cpu --json | python3 "$TOOLS/fields.py" 'tensors[]' 'cpu{}'
zerope inspect "$SMOLLM2" | grep -c llama >count; test "$(cat count)" -ge 1 && echo 'table ok'
