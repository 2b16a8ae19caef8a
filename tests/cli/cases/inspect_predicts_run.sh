# inspect says beforehand what run with the same options takes, of one prompt and of many lines, and
# refuses what run refuses.
m="$DATA/arch/gguf/gguf-qwen2.gguf"
for i in {1..20}; do echo "abc $i"; done >lines
plan() {
    zerope inspect "$m" "$@" | awk '{ bytes[$1] = $2 " " $3; gsub(",", "", $2); at[$1] = $2 }
        END { printf "%s threads, context %s, micro-batch %s, KV %s; ", at["n_threads"],
                     at["n_ctx"], at["micro_batch"], at["kv_type"]
              printf "weights %s, KV %s, scratch %s, positions %s\n", bytes["weights_bytes"],
                     bytes["kv_bytes"], bytes["scratch_bytes"], bytes["position_bytes"] }'
}
compare() {
    plan "$@" >planned
    case " $* " in *' -np '*) input='-f lines' ;; *) input='-p abc' ;; esac
    zerope run "$m" $input -n 1 -v "$@" 2>&1 >/dev/null |
        grep -o '[0-9]* threads, .*positions .*' | sed 's/ bytes/ B/' >taken
    cmp -s planned taken && echo "same: $*" || { echo "different: $*"; cat planned taken; }
}
compare
compare -c 2k
compare -np 1
compare -np 16
compare -c 2k -np 16
compare -c 2k -np 16 -ctk q8
compare -c 2k -ctv q8
compare -c 100 -np 3 -ctk f32 -b 33
compare -c 100 --exact -b 16
compare -c 100 --exact -np 16 -t 1
compare -c 8k -np 4 --kv-memory 3
try() { zerope "$@" 2>err >/dev/null; echo "$? $(head -1 err)"; }
for command in inspect run; do
    try $command "$m" -np 0
    try $command "$m" -np 4097
    try $command "$m" -b 0
    try $command "$m" -ctk f32 -ctv q8
    try $command "$m" -ctk q8 --exact
    try $command "$m" --kv-memory 0
done
# of 16 lines only some have room at a time
for n in 1000 1; do zerope run "$m" -f lines -n 60 -np 16 --kv-memory $n >"all$n" 2>/dev/null; done
cmp all1000 all1 && wc -l <all1
zerope inspect "$m" -c 64 -np 2 -ctk q8 --json | python3 -c 'import json, sys
m = json.load(sys.stdin)["memory"]
print(*(m[k] for k in ("n_seq", "kv_type", "exact", "prefix_cache")))'
