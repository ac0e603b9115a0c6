#!/usr/bin/env bash
# Packs the Python SDK, the launcher and the servers into a wheel for pip.
#
#   make_wheel.sh BIN_DIR OUT_DIR
#
# BIN_DIR is a tree of built binaries, as bin/ is. In the wheel weir/_bin is
# such a tree, and weir/_libs has every shared library that glibc does not have,
# each under a name of its own. A process loads one library of a name, and
# another package may bring one of the same name (Debian's PyTorch brings
# libprotobuf): neither must be taken for the other. Of libstdc++ and libgcc_s
# there can be only one in a whole Python, so the extension takes those of the
# machine, as PyTorch and NumPy do. Only the programs look in weir/_libs/gcc.
# Beside the wheel are its SHA-256 and a list of the packages in it, which is
# also inside. The same tree gives the same bytes. Prints the wheel's path.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=/dev/null
. "$here/../bundle/libraries.sh"

python=311 # client/python/BUILD names its headers
programs=(
  deploy/cli/weir_cli
  server/chief/weir_chief
  server/ps/weir_ps
  worker/weir_evaluator
  worker/weir_worker
)
bytes_max=$((40 << 20))

die() {
  printf 'weir: %s\n' "$*" >&2
  exit 3
}

[ $# -eq 2 ] || die "usage: make_wheel.sh BIN_DIR OUT_DIR"
bin_dir=$1
out_dir=$2
umask 022
mkdir -p "$out_dir"
work=$(mktemp -d "$out_dir/.wheel.XXXXXX")
trap 'rm -rf "$work"' EXIT
package=$work/tree/weir
libraries=$package/_libs
version=$(<"$root/VERSION")
info=$work/tree/weir-$version.dist-info
licenses=$info/licenses
core=$package/_core.cpython-$python-x86_64-linux-gnu.so

# add BUILT COPY RPATH: an ELF file of the build, and what it needs.
add() {
  [ -f "$1" ] || die "$1 is not there: ./weir wheel builds it"
  add_elf "$1" "$2" "$3"
  add_libraries "$1" "$libraries" "$licenses"
}

# The way from program $1 to the package's folder.
up() { sed 's:[^/]*$::; s:[^/]*/:../:g' <<<"_bin/$1"; }

# Gives every library in _libs, but not in _libs/gcc, a name of our own.
rename_libraries() {
  local path name ours renamed=()
  for path in "$libraries"/lib*; do
    name=${path##*/}
    ours=${name/.so/-weir.so}
    mv "$path" "$libraries/$ours"
    patchelf --set-soname "$ours" "$libraries/$ours"
    renamed+=(--replace-needed "$name" "$ours")
  done
  for path in "$libraries"/lib* "$core" "${programs[@]/#/$package/_bin/}"; do
    patchelf "${renamed[@]}" "$path"
  done
}

has() { [ -f "$libraries/$1" ]; }
has_gcc() { has "$1" || [ -f "$libraries/gcc/$1" ]; }

# faults FILE RPATH
faults() {
  elf_faults "$1" "$2" has_gcc | sed "s:^:${1#"$work/tree/"} :"
}

verify() {
  local found path
  # shellcheck disable=SC2016
  found=$(
    faults "$core" '$ORIGIN/_libs'
    for path in "$libraries"/lib* "$libraries"/gcc/lib*; do
      faults "$path" '$ORIGIN'
    done
    for path in "${programs[@]}"; do
      faults "$package/_bin/$path" "$(rpath "$path")"
    done
    printf '%s\n' "$libraries"/lib* "$libraries"/gcc/lib* |
      sed 's:.*/::; s:-weir\.so:.so:' |
      sbom_faults "$info/sboms/weir.cdx.json" 2>&1
  )
  [ -z "$found" ] || die "the wheel would not run elsewhere:"$'\n'"$found"
}

rpath() {
  local libs
  # shellcheck disable=SC2016
  libs='$ORIGIN'/$(up "$1")_libs
  printf '%s:%s/gcc' "$libs" "$libs"
}

mkdir -p "$libraries/gcc" "$info"
while read -r path; do
  install -D -m 644 "$root/client/python/weir/$path" "$package/$path"
done < <(cd "$root/client/python/weir" && find . -name '*.py' -o -name py.typed)
# shellcheck disable=SC2016
add "$bin_dir/client/python/weir/_core.so" "$core" '$ORIGIN/_libs'
for path in "${programs[@]}"; do
  add "$bin_dir/$path" "$package/_bin/$path" "$(rpath "$path")"
done
install -D -m 644 "$root/LICENSE" "$licenses/LICENSE"
add_header_licenses "$licenses"
add_license /usr/include/pybind11/pybind11.h "$licenses"
mkdir "$info/sboms" # PEP 770
write_sbom "$licenses" "$version" "$info/sboms/weir.cdx.json"
mv "$libraries"/lib{stdc++,gcc_s}.so.* "$libraries/gcc/"
rename_libraries
verify
cat >"$info/METADATA" <<END
Metadata-Version: 2.1
Name: weir
Version: $version
Summary: Parameter servers for training across machines
License: Apache-2.0
Requires-Python: >=3.11,<3.12
Requires-Dist: numpy
Provides-Extra: torch
Requires-Dist: torch; extra == "torch"
Description-Content-Type: text/markdown

$(<"$here/README.md")
END
# shellcheck disable=SC2154 # from libraries.sh
tag=cp$python-cp$python-manylinux_${glibc_max/./_}_x86_64
cat >"$info/WHEEL" <<END
Wheel-Version: 1.0
Generator: weir
Root-Is-Purelib: false
Tag: $tag
END
cat >"$info/entry_points.txt" <<END
[console_scripts]
weir = weir._launcher:main
weir_chief = weir._launcher:chief
weir_ps = weir._launcher:ps
END
echo weir >"$info/top_level.txt"
wheel=weir-$version-$tag.whl
# The entries are sorted and have one date, 1980-01-01.
SOURCE_DATE_EPOCH=315532800 /usr/bin/python3 -B -m wheel pack \
  --dest-dir "$work" "$work/tree" >"$work/log" || die "$(cat "$work/log")"
refuse_large wheel "$work/$wheel" "$bytes_max" "$work/tree"
publish "$work/$wheel" "$info/sboms/weir.cdx.json" "$out_dir"
printf '%s\n' "$out_dir/$wheel"
printf 'weir: %s, %s\n' "$out_dir/$wheel" "$(mebibytes "$out_dir/$wheel")" >&2
