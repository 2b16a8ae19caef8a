# Text, Markdown and pages into token documents, with a new tokenizer and with one that is there.
mkdir -p texts/sub texts/.git more
for i in 1 2 3 4 5 6 7 8 9; do
    sed -n "$((i * 60)),$((i * 60 + 59))p" "$DATA/prose.txt" >texts/t$i.txt
done
printf '# Title\n\n- *item*\n' >texts/sub/notes.md
printf '<html><head><title>x</title></head><body><p>A &amp; B</p><p>caf&eacute;</p></body></html>' \
    >texts/sub/page.HTML
cp texts/t1.txt texts/again.txt
: >texts/empty.txt
printf '\377' >texts/.git/object
printf 'One more text, given by its own name.\n' >more/one.txt
see() { tr -d ' ",' <$1.json | grep -v -e '^[{}]' -e tokens: -e file_bytes -e token_length -e share; }
zerope corpus -f texts -f more/one.txt --train-vocab 400 -o new.tokens --json -q >new.json; see new
zerope corpus -f texts -f more/one.txt --train-vocab 400 -o again.tokens -q >/dev/null
cmp new.tokens again.tokens && echo same

# the tokenizer that was written, and a model's
zerope corpus -f texts -f more/one.txt --tokenizer tokenizer.gguf -o third.tokens -q --json >third.json
cmp new.tokens third.tokens && see third | grep -e trained -e n_vocab
zerope corpus -f texts --tokenizer "$DATA"/arch/gguf/gguf-qwen2.gguf -o model.tokens -q --json >model.json
see model | grep -e trained -e documents
zerope corpus -f texts --tokenizer "$DATA"/arch/qwen2 -o hf.tokens -q --json >hf.json
see hf | grep -e trained -e documents

# what is held out
zerope corpus -f texts --train-vocab 300 -o half.tokens --held 0.5 -q --json >half.json
see half | grep held_documents
zerope corpus -f more/one.txt --train-vocab 300 -o one.tokens --no-held -q --json >one.json
see one | grep documents
zerope corpus -f texts --train-vocab 300 -o half.tokens -q | cut -d' ' -f1
ls
