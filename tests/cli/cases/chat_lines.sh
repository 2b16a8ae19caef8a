# group: model
# timeout: 120
# A line with a NUL byte is refused by name; a closed standard input is an error, as it is for run.
printf 'a\0b\n' | zerope chat "$SMOLLM2" -n 4 -q 2>err; echo "$? $(grep -c 'a message cannot hold a NUL byte' err)"
zerope chat "$SMOLLM2" -n 4 -q <&- 2>err; echo "$? $(cat err)"
zerope run "$SMOLLM2" -n 4 -q <&- 2>err; echo "$? $(cat err)"
