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

add_weir "$bin_dir" "$bundle" "$@"
write_sbom "$bundle/LICENSES" "$(cat "$root/VERSION")" "$bundle/sbom.cdx.json"

install -m 755 "$here/weir.sh" "$bundle/weir"
install -m 644 "$here/README.md" "$bundle/"
# PyTorch's side, which the benches start by the paths that the source has.
for path in "$root"/bench/*/torch_*.py; do
  install -D -m 644 "$path" "$bundle/${path#"$root/"}"
done
chmod -R u=rwX,go=rX "$bundle"

"$here/verify_bundle.sh" "$bundle"

tar -C "$work" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \
  -cf "$work/tar" "$name"
gzip -9 -n "$work/tar"
refuse_large bundle "$work/tar.gz" "$bytes_max" "$bundle"
mv "$work/tar.gz" "$work/${archive##*/}"
publish "$work/${archive##*/}" "$bundle/sbom.cdx.json" "$out_dir"
printf 'weir: %s, %s\n' "$archive" "$(mebibytes "$archive")" >&2
