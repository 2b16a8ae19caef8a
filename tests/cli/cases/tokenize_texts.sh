# group: model
# Ids of plain text, special tokens as text and as tokens, BOS where the model wants one.
zerope tokenize "$SMOLLM2" -p 'Hello, world!'
zerope tokenize "$SMOLLM2" -p '<|im_start|>' | wc -w
zerope tokenize "$SMOLLM2" -p '<|im_start|>' --special
zerope tokenize -m "$SMOLLM2" --bos <<<'two  spaces   three'
printf 'Hello, world!' | ZEROPE_MODEL=$GEMMA3 zerope tokenize --bos -f -
zerope tokenize "$SMOLLM2" -p 'Grüße 你' --pieces
zerope tokenize "$SMOLLM2" -p 'Hello, world!' --json | tr -d ' \n'; echo
zerope tokenize "$SMOLLM2" -p ''
zerope detokenize "$SMOLLM2" -p "19556, 28" --json | tr -d "\n"; echo
zerope tokenize "$SMOLLM2" -p 'Hello, wörld! 🦀' | zerope detokenize "$SMOLLM2"; echo
zerope detokenize "$SMOLLM2" -p '[1, 19556, 2]'; echo
zerope detokenize "$SMOLLM2" -p '[1, 19556, 2]' --special; echo
