#!/usr/bin/env bash
# Says whether an unpacked bundle needs nothing but glibc, and CUDA for a GPU.
#
#   verify_bundle.sh DIR
#
# Reads every program's and library's headers and runs none of them. Prints one
# line per fault and ends with 1 if there is one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=/dev/null
. "$here/libraries.sh"

glibc_max=2.36 # Debian 12
bundle=$1
faults=0

fault() {
  printf 'weir: %s\n' "$*" >&2
  faults=$((faults + 1))
}

# check FILE RPATH
check() {
  local file=$1 short=${1#"$bundle/"} library newest
  while read -r library; do
    if is_glibc "$library" || [ -f "$bundle/lib/$library" ]; then
      continue
    fi
    if [ "$short" = lib/libweir_cuda.so ] && is_cuda "$library"; then
      continue
    fi
    fault "$short needs $library, which is neither in lib/ nor glibc's"
  done < <(needed "$file")
  LC_ALL=C readelf -d "$file" | grep -qF "Library rpath: [$2]" ||
    fault "$short does not look for its libraries in $2"
  newest=$(LC_ALL=C readelf --version-info "$file" |
    grep -o 'GLIBC_[0-9.]*[0-9]' | sort -Vu | tail -n 1) || true
  newest=${newest#GLIBC_}
  [ "$(printf '%s\n' "$newest" "$glibc_max" | sort -V | tail -n 1)" = \
    "$glibc_max" ] || fault "$short needs glibc $newest, newer than $glibc_max"
  if LC_ALL=C readelf -S "$file" | grep -qF .symtab; then
    fault "$short is not stripped"
  fi
}

shopt -s nullglob
programs=("$bundle"/bin/weir_*)
[ "${#programs[@]}" -gt 0 ] || fault "there is no program in $bundle/bin"
for path in "$bundle"/bin/*; do
  # shellcheck disable=SC2016
  [ -d "$path" ] || check "$path" '$ORIGIN/../lib'
done
for path in "$bundle"/lib/*; do
  # shellcheck disable=SC2016
  check "$path" '$ORIGIN'
done
while read -r path; do
  fault "${path#"$bundle/"} is a link to nothing"
done < <(find "$bundle" -xtype l)
[ "$faults" -eq 0 ]
