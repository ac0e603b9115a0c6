#!/usr/bin/env bash
# Reads in the headers, the symbols and the code of every binary that is shipped
# that the compiler and the linker put their defences in, as .bazelrc asks.
#
# Debian's C library brings start-up objects without Intel's CET property, so no
# linker sets it on a program. Checked is what the compiler does: a function that
# can be called through a pointer begins with endbr64.
set -euo pipefail
export LC_ALL=C

faults=0
fault() {
  printf 'FAILED: %s %s\n' "$file" "$1" >&2
  faults=$((faults + 1))
}

# has PATTERN COMMAND...: whether the command writes a line that matches. It
# reads to the end, so the command does not fail because nobody reads on.
has() {
  [ "$("${@:2}" | grep -cE "$1")" -gt 0 ]
}

headers() { readelf -hlW "$file"; }
dynamic() { readelf -dW "$file"; }
imports() { readelf --dyn-syms -W "$file" | sed -n 's/.* UND //p'; }

# The first instruction of function $1.
first_instruction() {
  objdump -d --no-show-raw-insn "--disassemble=$1" "$file" |
    awk -v name="<$1>:" '$2 == name { found = 1; next } found { print; exit }'
}

# check FILE ENTRY
check() {
  file=$1
  [ -f "$file" ] || { fault "is not there" && return; }
  has '^ *Type: +DYN ' headers || fault "is not position-independent"
  if [[ $file != *.so ]]; then
    has 'FLAGS_1.* PIE' dynamic || fault "is no position-independent program"
  fi
  has '^ *GNU_RELRO ' headers || fault "has no RELRO"
  has 'BIND_NOW|FLAGS_1.* NOW' dynamic ||
    fault "is bound lazily: its RELRO is partial"
  has '^ *GNU_STACK .* RW  ' headers || fault "has a stack that can be executed"
  ! has '^ *LOAD .* RWE ' headers || fault "has a segment for writes and code"
  has '^__stack_chk_fail@' imports || fault "has no stack protector"
  has '^__(mem|str|[a-z]*printf|read|pread|recv|fd)[a-z_]*_chk@' imports ||
    fault "has no check of FORTIFY"
  has 'glibcxx_assert_fail' imports ||
    fault "has no assertion of the standard library"
  has 'endbr64' first_instruction "$2" ||
    fault "has a function $2 without endbr64"
}

# A program that has all, and one for each fault that must be found in it.
cat >"$TEST_TMPDIR/small.cc" <<'END'
#include <cstring>
#include <vector>
int main(int argc, char** argv) {
  char name[16];
  std::strcpy(name, argv[0]);
  const std::vector<char> copy(name, name + argc);
  return copy[copy.size() - 1];
}
END
# small FLAG...: compiles it, and prints what check says of it.
small() {
  g++ -O2 -fPIE -pie -fstack-protector-strong -fcf-protection=full \
    -D_FORTIFY_SOURCE=3 -D_GLIBCXX_ASSERTIONS -Wl,-z,relro,-z,now "$@" \
    -o "$TEST_TMPDIR/small" "$TEST_TMPDIR/small.cc"
  check "$TEST_TMPDIR/small" main 2>&1
}
said=$(small)
[ -z "$said" ] || { printf 'a program that has all: %s\n' "$said" >&2 && exit 1; }
# finds WHAT FLAG...
finds() {
  local said
  said=$(small "${@:2}")
  grep -qF "$1" <<<"$said" ||
    { printf 'FAILED: with %s it says: %s\n' "${*:2}" "$said" >&2 && exit 1; }
}
finds "is not position-independent" -fno-PIE -no-pie
finds "has no RELRO" -Wl,-z,norelro
finds "is bound lazily" -Wl,-z,lazy
finds "a stack that can be executed" -Wl,-z,execstack
finds "has no stack protector" -fno-stack-protector
finds "has no check of FORTIFY" -U_FORTIFY_SOURCE
finds "has no assertion of the standard library" -U_GLIBCXX_ASSERTIONS
finds "without endbr64" -fcf-protection=none
finds "is no position-independent program" -shared -fPIC

check server/ps/weir_ps main
check server/chief/weir_chief main
check worker/weir_worker main
check worker/weir_evaluator main
check deploy/cli/weir_cli main
check client/python/weir/_core.so PyInit__core
plugin=worker/compute/cuda/libweir_cuda.so # where there is a CUDA Toolkit
[ ! -e "$plugin" ] || check "$plugin" weir_compute_plugin
[ "$faults" -eq 0 ]
