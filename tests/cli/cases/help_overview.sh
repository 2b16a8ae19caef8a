# Words without a command show the overview on stderr; asked for, it goes to stdout.
# stderr: Usage: zerope COMMAND*
zerope
echo "exit $?"
zerope --help | cmp - <(zerope help) && echo same
zerope help | grep -c '^  [a-z]'
