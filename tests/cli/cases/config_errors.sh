# A config file with a mistake is refused, with its name and place.
try() { printf '%s' "$1" >c.json; zerope config print run --config c.json 2>err; echo "$? $(head -1 err)"; }
try '{"tread": 2}'
try '{"run": {"tmp": 1}}'
try '{"run": {"temp": "hot"}}'
try '{"run": {"windows": 3}}'
try '{"threads": '
try '[1]'
try '{"threads": {}}'
try '{"threads": [1, 2]}'
try '{"threads": 1, "threads": 2}'
try '{"run": 5}'
try '{"run": null}'
try '{"ppl": "x"}'
try '{"scan": "s.json"}'
try '{"help": true}'
try '{"config": "d.json"}'
try '{"run": {"help": true}}'
try '{"run": {"config": "d.json"}}'
try '{"ppl": {"windows": 3}}'
try '{"windows": 3}'
try '{"inspect": {"cpu": "ref"}}'
zerope config print run --config missing.json 2>err; echo "$? $(head -1 err)"
zerope config print run --config . 2>err; echo "$? $(head -1 err)"
ZEROPE_TEMP=hot zerope config print run 2>err; echo "$? $(head -1 err)"
