# With --json an error is one JSON document too, on stdout; the text stays on stderr.
# exit: 2
# stderr: zerope: error: --temp: found 'hot', expected a number
# stderr: try: zerope run --help
zerope run m --json --temp hot
