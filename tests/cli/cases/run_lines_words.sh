# What run -np says: the number of a line that is wrong, seeds where run of one prompt says them,
# one of a thing in the singular; blank lines are no prompts.
m="$DATA/arch/gguf/gguf-qwen2.gguf"
try() { zerope run "$m" -n 1 --ignore-eos "$@" 2>err >out; echo "$?" "$(cat err)"; }
without_times() { sed 's/, [0-9.]* t.s//g; s/: [0-9.]* s; load/; load/; s/load [0-9.]* s/load/'; }
printf 'ab\n\nab\377c\nab\n' >bad; try -f bad -np 2
echo '{{ messages }}' >template; try -f bad -np 2 --chat --chat-template template
echo '{{ nothing.at.all }}' >template; try -p ab -np 2 --chat --chat-template template
printf 'a\n' | try -np 4 | without_times
try -p a | without_times
printf ' \n\t \r\na\n  \nbc\n\r\n a' | try -np 1 | without_times; grep '^>' out
printf ' \n\t\r\n\n' | try -np 4
for words in '' '--seed 7' '--temp 1' '--temp 1 --seed 7'; do
    for np in '' '-np 2'; do
        try -p a $np $words --json >seen
        python3 - "$np $words" <<'END'
import json
import sys

seed = json.load(open("out")).get("seed")
print("'%s':" % sys.argv[1], "no seed" if seed is None else "seed 7" if seed == 7 else "a new seed")
END
    done
done
for words in '' '--temp 1' '--temp 1 --seed 7'; do
    try -p a -np 2 $words | grep -o '; seed [0-9]*' | sed 's/seed [0-9][0-9]\+/a new seed/'
done
