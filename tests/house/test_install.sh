#!/usr/bin/env bash
# test_install: what `cmake --install` lays down is complete, and programs build against it alone.
# Usage: test_install.sh BUILD-FOLDER COMPILER
set -euo pipefail
build=$1 compiler=$2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cmake --install "$build" --prefix "$tree" >"$tree/log" || { cat "$tree/log"; exit 1; }

for file in bin/zerope include/zerope/zerope.h include/zerope/status.h share/man/man1/zerope.1 \
  share/bash-completion/completions/zerope share/zsh/site-functions/_zerope \
  share/fish/vendor_completions.d/zerope.fish; do
  [ -s "$tree/$file" ] || { echo "not installed, or empty: $file"; exit 1; }
done
"$tree/bin/zerope" version
bash -n "$tree/share/bash-completion/completions/zerope"
grep -q '^\.TH ZEROPE 1' "$tree/share/man/man1/zerope.1"

pc=$(dirname "$(find "$tree" -name zerope.pc)")
query() { PKG_CONFIG_PATH=$pc pkg-config "$@" zerope; }
cat >"$tree/probe.c" <<'C'
#include <stdio.h>
#include <string.h>
#include <zerope/eval.h>
#include <zerope/evap.h>
#include <zerope/report.h>
#include <zerope/zerope.h>
int main(void)
{
    zp_model *model = NULL;
    zp_err err = { 0 };
    zp_status status = zp_model_open(&model, "/nowhere/at/all.gguf", NULL, &err);
    if (zp_report_heatmap("", "/nowhere", NULL) == ZP_OK) return 2; /* every header is exported */
    printf("%s %s: %s\n", zp_version(), zp_status_name(status), err.message);
    return status == ZP_OK || strstr(err.message, "/nowhere/at/all.gguf") == NULL;
}
C
# Our headers need no others: the flags name our folder and nothing else.
[ "$(query --cflags | tr -s ' ' '\n' | grep -vc '^$')" = 1 ] || { query --cflags; exit 1; }
library=$(realpath "$(query --variable=libdir)")
"$compiler" -std=c17 -Wall -Wextra -Werror "$tree/probe.c" $(query --cflags) $(query --libs) \
  -o "$tree/shared"
LD_LIBRARY_PATH=$library "$tree/shared"
LD_LIBRARY_PATH=$library ldd "$tree/shared" | grep "libzerope.so.0 => $tree"
"$compiler" -std=c17 "$tree/probe.c" $(query --cflags) "$library/libzerope.a" \
  $(query --static --libs | sed 's/-lzerope//') -o "$tree/static"
"$tree/static"

# Every header serves a C++ program too: it compiles, and the names link as C's.
cxx=${CXX:-$(command -v g++ clang++ clang++-14 | head -1 || true)}
if [ -n "$cxx" ]; then
  cat >"$tree/probe.cc" <<'CC'
#include <zerope/eval.h>
#include <zerope/evap.h>
#include <zerope/report.h>
#include <zerope/status.h>
#include <zerope/zerope.h>
#include <cstring>
int main()
{
    zp_model *model = nullptr;
    zp_err err = {};
    zp_ppl_options ppl = {};
    zp_verify_options verify = {};
    zp_status status = zp_model_open(&model, "/nowhere/at/all.gguf", nullptr, &err);
    if (zp_report_heatmap("", "/nowhere", nullptr) == ZP_OK) return 2;
    if (zp_verify_run("/nowhere", "/nowhere", "/nowhere", &verify, nullptr, nullptr) == ZP_OK)
        return 3;
    if (model != nullptr) return zp_ppl_json(model, nullptr, "/", &ppl, nullptr, &err) == ZP_OK;
    return std::strcmp(zp_status_name(status), "ZP_BAD_INPUT") != 0;
}
CC
  for standard in c++11 c++17; do
    "$cxx" -std=$standard -Wall -Wextra -Wpedantic -Werror "$tree/probe.cc" $(query --cflags) \
      $(query --libs) -o "$tree/cxx"
    LD_LIBRARY_PATH=$library "$tree/cxx"
  done
else
  echo "no C++ compiler: headers not tried from C++"
fi

# The shared library exports the public names and nothing else.
stray=$(nm -D --defined-only "$library/libzerope.so" | awk '{print $3}' | grep -v '^zp_' || true)
[ -z "$stray" ] || { echo "exported beside zp_*:"; echo "$stray"; exit 1; }
