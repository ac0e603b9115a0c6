#!/usr/bin/env bash
# Says whether the files of an image are all that its programs need.
#
#   verify_image.sh ROOT
#
# ROOT is the unpacked root directory. Reads the headers of its programs and
# libraries and runs none of them: nothing may come from outside the image but
# the driver of a GPU, and the list of packages must have all that is of others.
# Prints one line for each fault and ends with 1 if there is one.
set -euo pipefail
shopt -s nullglob

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=/dev/null
. "$here/../bundle/libraries.sh"

root=$1
weir=$root/opt/weir
faults=0

fault() {
  printf 'weir: %s\n' "$*" >&2
  faults=$((faults + 1))
}

# Whether the image has library $1 where a program's path or its loader looks.
has() {
  local folder
  for folder in opt/weir/lib opt/weir/cuda lib/x86_64-linux-gnu lib64; do
    [ ! -f "$root/$folder/$1" ] || return 0
  done
  return 1
}

"$here/../bundle/verify_bundle.sh" "$weir" || faults=1
glibc=("$root"/lib/x86_64-linux-gnu/* "$root"/lib64/*)
cuda=("$weir"/cuda/*)
for path in "$weir"/bin/weir* "$weir"/lib/* "${glibc[@]}" "${cuda[@]}"; do
  while read -r library; do
    has "$library" || [[ $library == libcuda.so.* ]] ||
      fault "${path#"$root"} needs $library, which the image does not have"
  done < <(needed "$path")
done
# The loader is the one file that is named by its whole path.
loader=$(LC_ALL=C readelf -lW "$weir/bin/weir" |
  sed -n 's/.*Requesting program interpreter: \(.*\)\]$/\1/p')
[ -x "$root$loader" ] || fault "there is no loader $loader in the image"
while read -r line; do
  fault "$line"
done < <(printf '%s\n' "${glibc[@]##*/}" "${cuda[@]##*/}" |
  sbom_faults "$weir/sbom.cdx.json" 2>&1)
for path in etc/passwd etc/group etc/nsswitch.conf \
  etc/ssl/certs/ca-certificates.crt; do
  [ -s "$root/$path" ] || fault "there is no /$path in the image"
done
for path in tmp run/weir; do
  if [ ! -d "$root/$path" ] || [ -n "$(ls -A "$root/$path")" ]; then
    fault "/$path is no empty folder"
  fi
done
while read -r path; do
  fault "${path#"$root"} gives rights to whoever runs it"
done < <(find "$root" -type f -perm /6000)
[ "$faults" -eq 0 ]
