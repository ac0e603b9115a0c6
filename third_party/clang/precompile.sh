#!/usr/bin/env bash
# precompile.sh CLANG CONFIG OUT_DIR: writes OUT_DIR/O0.pch and OUT_DIR/O1.pch for
# a config of .bazelrc that compiles with CLANG.
#
# clang reads such a file in place of the headers of headers.txt. It refuses one
# whose options are not those of the source, so the options come from .bazelrc.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
clang=$1
config=$2
out=$3
mapfile -t options < <(
  sed -nE "s/^build(:$config)? --c(xx)?opt=//p" "$root/.bazelrc"
)
while read -r header; do
  options+=(-include "$header")
done < <(grep -v '^#' "$root/third_party/clang/headers.txt")

# precompile LEVEL: the main file is a system header. One of Weir's own would be in
# the list of what each source includes, and Bazel would ask every target to
# declare it.
precompile() {
  # A cache is asked with the file's bytes, which are the same for every copy of
  # the tree: what goes to standard output names no folder.
  cd /
  "$clang" -fPIC -fstack-protector "${options[@]}" "-$1" \
    -fpch-instantiate-templates -x c++-header /usr/include/gtest/gtest.h \
    -o - >"$out/$1.pch"
}

precompile O0 &
precompile O1
wait "$!"
