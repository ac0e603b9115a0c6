#!/usr/bin/env bash
# Says whether an unpacked bundle needs nothing but glibc, and CUDA for a GPU,
# carries its licence, and lists all that it carries.
#
#   verify_bundle.sh DIR
#
# Reads every program's and library's headers and runs none of them. Prints one
# line for each fault and ends with 1 if there is one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=/dev/null
. "$here/libraries.sh"

bundle=$1
faults=0

fault() {
  printf 'weir: %s\n' "$*" >&2
  faults=$((faults + 1))
}

# What a library may be found in; only the plug-in may need CUDA's.
has() { [ -f "$bundle/lib/$1" ]; }
has_or_cuda() { has "$1" || is_cuda "$1"; }

# check FILE RPATH
check() {
  local short=${1#"$bundle/"} has=has line
  [ "$short" != lib/libweir_cuda.so ] || has=has_or_cuda
  while read -r line; do
    fault "$short $line"
  done < <(elf_faults "$1" "$2" "$has")
}

shopt -s nullglob
programs=("$bundle"/bin/weir_*)
[ "${#programs[@]}" -gt 0 ] || fault "there is no program in $bundle/bin"
[ -s "$bundle/LICENSE" ] || fault "there is no LICENSE in $bundle"
for path in "$bundle"/bin/*; do
  # shellcheck disable=SC2016
  [ -d "$path" ] || check "$path" '$ORIGIN/../lib'
done
for path in "$bundle"/lib/*; do
  # shellcheck disable=SC2016
  check "$path" '$ORIGIN'
done
while read -r line; do
  fault "$line"
done < <(cd "$bundle/lib" && printf '%s\n' * | grep -vx libweir_cuda.so |
  sbom_faults "$bundle/sbom.cdx.json" 2>&1)
while read -r path; do
  fault "${path#"$bundle/"} is a link to nothing"
done < <(find "$bundle" -xtype l)
[ "$faults" -eq 0 ]
