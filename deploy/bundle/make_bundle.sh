#!/usr/bin/env bash
# Packs built programs into an archive that runs on any x86-64 Linux.
#
#   make_bundle.sh BIN_DIR OUT_DIR LABEL...
#
# Each LABEL is a Bazel target whose output lies below BIN_DIR. Programs go to
# bin/, libweir_cuda.so to lib/ with every shared library that glibc does not
# have, found by ldd from what each file names. All is stripped, finds its
# libraries by $ORIGIN alone, and is verified before the archive gets its name.
# The same tree gives the same bytes.
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
mkdir -p "$bundle"/{bin,lib,examples,bench,LICENSES}

# add SOURCE FOLDER NAME: a stripped copy that finds its libraries by $ORIGIN,
# even where LD_LIBRARY_PATH has others of the same name.
add() {
  local copy=$bundle/$2/$3
  install -m 755 "$1" "$copy"
  strip --strip-all "$copy" # before patchelf: strip spoils what that wrote
  # shellcheck disable=SC2016
  case $2 in
    bin) patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$copy" ;;
    lib) patchelf --force-rpath --set-rpath '$ORIGIN' "$copy" ;;
  esac
}

# Adds the libraries that file $1 needs, and what they need.
add_libraries() {
  local file=$1 library path
  while read -r library; do
    if is_glibc "$library" || is_cuda "$library" ||
      [ -e "$bundle/lib/$library" ]; then
      continue
    fi
    path=$(ldd "$file" | awk -v name="$library" '$1 == name { print $3 }')
    [ -f "$path" ] || die "$file needs $library, which this machine lacks"
    add "$path" lib "$library"
    add_license "$path"
    add_libraries "$path"
  done < <(needed "$file")
}

# Copies the terms of the Debian package that file $1 is from, and the licences
# that they refer to.
add_license() {
  local package path terms shared
  path=$(realpath "$1")
  # Packages from before Debian's merge of /lib and /usr/lib say /lib.
  package=$(dpkg -S "$path" 2>/dev/null || dpkg -S "${path#/usr}" 2>/dev/null) ||
    die "$1 is from no Debian package: its licence is not known"
  package=${package%%:*}
  terms=/usr/share/doc/$package/copyright
  [ -e "$terms" ] || die "$terms is not there: reinstall $package"
  install -m 644 "$terms" "$bundle/LICENSES/$package"
  while read -r shared; do
    if [ -f "$shared" ]; then
      mkdir -p "$bundle/LICENSES/common-licenses"
      install -m 644 "$shared" "$bundle/LICENSES/common-licenses/"
    fi
  done < <(grep -o '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' \
    "$terms" | sort -u)
}

for label in "$@"; do
  path=${label#//}
  built=$bin_dir/${path/:/\/}
  file=${path#*:}
  [ -f "$built" ] || die "$built is not there: ./weir bundle builds it"
  if [[ $file == *.so ]]; then
    add "$built" lib "$file"
  else
    add "$built" bin "$file"
    if [[ $file != *_bench ]]; then # the launcher knows a build's tree
      folder=${path%:*}
      mkdir -p "$bundle/bin/$folder"
      ln -sr "$bundle/bin/$file" "$bundle/bin/$folder/"
    fi
  fi
  add_libraries "$built"
done
# Parts of what only headers hold are inside the programs.
for header in CLI/CLI.hpp nlohmann/json.hpp absl/base/config.h \
  grpcpp/grpcpp.h spdlog/spdlog.h; do
  add_license "/usr/include/$header"
done

install -m 755 "$here/weir.sh" "$bundle/weir"
install -m 644 "$here/README.md" "$root/VERSION" "$bundle/"
install -m 644 "$root"/examples/*.textproto "$bundle/examples/"
install -m 644 "$root"/bench/*.py "$bundle/bench/" # what --peers starts
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
mv "$work/tar.gz" "$archive"
printf 'weir: %s, %s MiB\n' "$archive" \
  "$(awk -v bytes="$bytes" 'BEGIN { printf "%.1f", bytes / 1048576 }')" >&2
