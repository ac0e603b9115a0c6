#!/usr/bin/env bash
# Packs built programs into an archive that runs on any x86-64 Linux.
#
#   make_bundle.sh BIN_DIR OUT_DIR LABEL...
#
# Each LABEL is a Bazel target whose output lies below BIN_DIR. Programs go to
# bin/, libweir_cuda.so to lib/ with every shared library that glibc does not
# have, found by ldd from what each file names. All is stripped, finds its
# libraries by $ORIGIN alone, and is verified before the archive gets its name.
# Beside the archive are its SHA-256 and a list of the packages in it, which is
# also inside (make_sbom.py). The same tree gives the same bytes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=/dev/null
. "$here/libraries.sh"

bytes_max=$((40 << 20))

die() {
  printf 'weir: %s\n' "$*" >&2
  exit 3
}

[ $# -ge 3 ] || die "usage: make_bundle.sh BIN_DIR OUT_DIR LABEL..."
bin_dir=$1
out_dir=$2
shift 2
name=weir-$(cat "$root/VERSION")
archive=$out_dir/$name-linux-x86_64.tar.gz
mkdir -p "$out_dir"
work=$(mktemp -d "$out_dir/.bundle.XXXXXX")
trap 'rm -rf "$work"' EXIT
bundle=$work/$name
mkdir -p "$bundle"/{bin,lib,examples,LICENSES}

for label in "$@"; do
  path=${label#//}
  built=$bin_dir/${path/:/\/}
  file=${path#*:}
  [ -f "$built" ] || die "$built is not there: ./weir bundle builds it"
  if [[ $file == *.so ]]; then
    # shellcheck disable=SC2016
    add_elf "$built" "$bundle/lib/$file" '$ORIGIN'
  else
    # shellcheck disable=SC2016
    add_elf "$built" "$bundle/bin/$file" '$ORIGIN/../lib'
    if [[ $file != *_bench ]]; then # the launcher knows a build's tree
      folder=${path%:*}
      mkdir -p "$bundle/bin/$folder"
      ln -sr "$bundle/bin/$file" "$bundle/bin/$folder/"
    fi
  fi
  add_libraries "$built" "$bundle/lib" "$bundle/LICENSES"
done
add_header_licenses "$bundle/LICENSES"
write_sbom "$bundle/LICENSES" "$(cat "$root/VERSION")" "$bundle/sbom.cdx.json"

install -m 755 "$here/weir.sh" "$bundle/weir"
install -m 644 "$here/README.md" "$root/LICENSE" "$root/VERSION" "$bundle/"
install -m 644 "$root"/examples/*.textproto "$bundle/examples/"
# PyTorch's side, which the benches start by the paths that the source has.
for path in "$root"/bench/*/torch_*.py; do
  install -D -m 644 "$path" "$bundle/${path#"$root/"}"
done
chmod -R u=rwX,go=rX "$bundle"

"$here/verify_bundle.sh" "$bundle"

tar -C "$work" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \
  -cf "$work/tar" "$name"
gzip -9 -n "$work/tar"
bytes=$(stat -c %s "$work/tar.gz")
if [ "$bytes" -gt "$bytes_max" ]; then
  find "$bundle" -type f -printf '%s %P\n' | sort -rn | head -n 10 >&2
  die "the bundle has $bytes bytes, more than $bytes_max; its largest files are above"
fi
mv "$work/tar.gz" "$work/${archive##*/}"
publish "$work/${archive##*/}" "$bundle/sbom.cdx.json" "$out_dir"
printf 'weir: %s, %s MiB\n' "$archive" \
  "$(awk -v bytes="$bytes" 'BEGIN { printf "%.1f", bytes / 1048576 }')" >&2
