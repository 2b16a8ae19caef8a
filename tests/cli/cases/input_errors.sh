# Inputs that cannot be read are refused before the model is opened.
try() { zerope "$@" 2>err </dev/null; echo "$? $(head -1 err)"; }
mkdir folder
try template m missing.json
try template m folder
try run m -f missing.txt
try run m -f folder
