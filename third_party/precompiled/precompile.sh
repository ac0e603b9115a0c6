#!/usr/bin/env bash
# precompile.sh COMPILER CONFIG OUT_DIR: precompiles the headers of headers.txt for a
# config of .bazelrc that compiles with clang, with CONFIG "" for gcc, with "none"
# for nobody.
#
# A compiler refuses such a file where the options are not those of the source, so
# they come from .bazelrc. What is refused, gcc reads as text.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
compiler=$1
config=$2
out=$3
mapfile -t headers < <(grep -v '^#' "$root/third_party/precompiled/headers.txt")
mapfile -t options < <(
  sed -nE "s/^build(:$config)? --c(xx)?opt=//p" "$root/.bazelrc"
)

# A compiler for which there are none, and clang, which has its own, read nothing.
levels=(O0 O1 O2)
for level in "${levels[@]}"; do
  : >"$out/$level.h"
done

# with_clang LEVEL: the main file is a system header. One of Weir's own would be in
# the list of what each source includes, and Bazel would ask every target to
# declare it.
with_clang() {
  # A cache is asked with the file's bytes, which are the same for every copy of
  # the tree: what goes to standard output names no folder.
  cd /
  "$compiler" -fPIC -fstack-protector "${options[@]}" "-$1" \
    "${headers[@]/#/-include}" -include gmock/gmock.h -include grpcpp/grpcpp.h \
    -include nlohmann/json.hpp \
    -fpch-instantiate-templates -x c++-header /usr/include/gtest/gtest.h \
    -o - >"$out/$1.pch"
}

# with_gcc LEVEL FILE
with_gcc() {
  local own=(-DNDEBUG)
  # As in .bazelrc for these sources.
  [ "$1" != O0 ] || own+=(-U_FORTIFY_SOURCE)
  "$compiler" -fPIC "${options[@]}" "-$1" "${own[@]}" -x c++-header "$out/$1.h" \
    -o "$2"
}

if [ "$config" = none ]; then
  exit
elif [ -n "$config" ]; then
  with_clang O0 &
  with_clang O1
  wait "$!"
elif "$compiler" --version | grep -q 'Free Software Foundation'; then
  for level in "${levels[@]}"; do
    printf '#include <%s>\n' "${headers[@]}" >"$out/$level.h"
  done
  # gcc writes other bytes each time, and with other bytes all is compiled again.
  # Bazel asks anew after each build with clang, so what was written is kept beside
  # its repositories, under a name made of all that went into it.
  key=$({
    "$compiler" --version
    cat "${BASH_SOURCE[0]}"
    printf '%s\n' "${options[@]}"
    "$compiler" "${options[@]}" -x c++-header -M "$out/O2.h" |
      grep -o '/usr/[^ ]*' | xargs stat -Lc '%n %s %Y'
  } | sha256sum | cut -c1-16)
  kept=$out/../../../weir_precompiled
  mkdir -p "$kept"
  find "$kept" -type f ! -name "$key-*" -delete
  for level in "${levels[@]}"; do
    [ -f "$kept/$key-$level" ] || with_gcc "$level" "$kept/$key-$level.new" &
  done
  for job in $(jobs -p); do
    wait "$job"
  done
  for level in "${levels[@]}"; do
    [ ! -f "$kept/$key-$level.new" ] ||
      mv "$kept/$key-$level.new" "$kept/$key-$level"
    ln "$kept/$key-$level" "$out/$level.h.gch"
  done
fi
