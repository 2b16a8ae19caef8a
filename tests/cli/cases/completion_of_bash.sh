# The bash completions answer with commands, options, choices and files.
source <(zerope completion bash)
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _zerope; echo "${COMPREPLY[*]}"; }
touch model.gguf other.txt
try zerope ev
try zerope run model.gguf --te
try zerope run model.gguf --mode ''
try zerope run model.gguf -ctk ''
try zerope completion ''
try zerope config ''
try zerope inspect mod
try zerope run -f oth
