# Says what Weir may take from the machine that it runs on, and carries the rest
# along. To be sourced by a script that has a function die and, where it calls
# add_weir or add_header_licenses, a variable `root` with the folder of Weir's
# source.
# shellcheck shell=bash

glibc_max=2.36 # Debian 12
glibc_libraries=(
  ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libmvec.so.1
  libdl.so.2 libpthread.so.0 librt.so.1 libutil.so.1
  libresolv.so.2 libanl.so.1
)

# Whether glibc itself has this library.
is_glibc() { [[ " ${glibc_libraries[*]} " == *" $1 "* ]]; }

# Whether it belongs to CUDA; only the plug-in may need one.
is_cuda() {
  case $1 in
    libcuda.so.* | libcudart.so.* | libnvrtc.so.*) ;;
    libcublas.so.* | libcublasLt.so.* | libcudnn*.so.*) ;;
    *) return 1 ;;
  esac
}

# The libraries that the ELF file $1 names itself, one a line.
needed() {
  LC_ALL=C readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p'
}

# add_elf SOURCE COPY RPATH: a stripped copy that finds its libraries by RPATH,
# even where LD_LIBRARY_PATH has others of the same name.
add_elf() {
  install -D -m 755 "$1" "$2"
  strip --strip-all "$2" # before patchelf: strip spoils what that wrote
  patchelf --force-rpath --set-rpath "$3" "$2"
}

# add_libraries FILE LIBRARIES LICENSES: adds to the first folder the libraries
# that FILE needs and what they need, to the second one their terms.
add_libraries() {
  local file=$1 library path
  while read -r library; do
    if is_glibc "$library" || is_cuda "$library" || [ -e "$2/$library" ]; then
      continue
    fi
    path=$(ldd "$file" | awk -v name="$library" '$1 == name { print $3 }')
    [ -f "$path" ] || die "$file needs $library, which this machine lacks"
    # shellcheck disable=SC2016
    add_elf "$path" "$2/$library" '$ORIGIN'
    add_license "$path" "$3"
    add_libraries "$path" "$2" "$3"
  done < <(needed "$file")
}

# add_built LABEL BIN_DIR PLACE: adds what Bazel built of a target, below BIN_DIR,
# to the folder PLACE: programs to bin/, a plug-in to lib/ with what it needs, the
# terms to LICENSES/.
add_built() {
  local path=${1#//} file=${1#*:} built folder
  built=$2/${path/:/\/}
  [ -f "$built" ] || die "$built is not there: ./weir build $1 builds it"
  if [[ $file == *.so ]]; then
    # shellcheck disable=SC2016
    add_elf "$built" "$3/lib/$file" '$ORIGIN'
  else
    # shellcheck disable=SC2016
    add_elf "$built" "$3/bin/$file" '$ORIGIN/../lib'
    if [[ $file != *_bench ]]; then # the launcher knows a build's tree
      folder=$3/bin/${path%:*}
      mkdir -p "$folder"
      ln -sr "$3/bin/$file" "$folder/"
    fi
  fi
  add_libraries "$built" "$3/lib" "$3/LICENSES"
}

# add_weir BIN_DIR PLACE LABEL...: adds targets to the folder PLACE as add_built
# does, and what belongs to them: Weir's own terms, its version, the examples.
# write_sbom is still to be called.
add_weir() {
  local bin_dir=$1 place=$2 label
  mkdir -p "$place"/{bin,lib,examples,LICENSES}
  for label in "${@:3}"; do
    add_built "$label" "$bin_dir" "$place"
  done
  add_header_licenses "$place/LICENSES"
  # shellcheck disable=SC2154 # the script that sources this has it
  install -m 644 "$root/LICENSE" "$root/VERSION" "$place/"
  install -m 644 "$root"/examples/*.textproto "$place/examples/"
}

# add_license FILE LICENSES: copies the terms of the Debian package that FILE is
# from, and the licences that they refer to. Notes package and file in
# LICENSES.packages, for write_sbom.
add_license() {
  local package path terms shared
  path=$(realpath "$1")
  # Packages from before Debian's merge of /lib and /usr/lib say /lib.
  package=$(dpkg -S "$path" 2>/dev/null || dpkg -S "${path#/usr}" 2>/dev/null) ||
    die "$1 is from no Debian package: its licence is not known"
  package=${package%%:*}
  terms=/usr/share/doc/$package/copyright
  [ -e "$terms" ] || die "$terms is not there: reinstall $package"
  install -D -m 644 "$terms" "$2/$package"
  printf '%s %s\n' "$package" "${1##*/}" >>"$2.packages"
  while read -r shared; do
    if [ -f "$shared" ]; then
      install -D -m 644 -t "$2/common-licenses" "$shared"
    fi
  done < <(grep -o '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' \
    "$terms" | sort -u)
}

# Parts of what only headers hold are inside the programs.
add_header_licenses() {
  local header
  for header in CLI/CLI.hpp nlohmann/json.hpp absl/base/config.h \
    grpcpp/grpcpp.h spdlog/spdlog.h; do
    add_license "/usr/include/$header" "$1"
  done
  add_uplot_license "$1"
}

# The chief's page has uPlot, which is in the source with its terms.
add_uplot_license() {
  local uplot=$root/third_party/uplot
  install -D -m 644 "$uplot/LICENSE" "$1/uplot"
  printf 'npm:uplot@%s weir_chief\n' \
    "$(sed -n 's/^# uPlot //p' "$uplot/README.md")" >>"$1.packages"
}

# old_packages LIST: prints those packages of LIST that this machine could have
# in a newer version, as far as it has read the lists of its package source.
old_packages() {
  command -v apt-cache >/dev/null || return 0
  # shellcheck disable=SC2046
  LC_ALL=C apt-cache policy $(cut -d ' ' -f 1 "$1" | grep -v : | sort -u) |
    awk '/^[^ ]/ { name = $1 } $1 == "Installed:" { here = $2 }
      $1 == "Candidate:" && $2 != here { print name, here, "->", $2 }'
}

# write_sbom LICENSES VERSION FILE: lists in FILE the packages that add_license
# has noted, with their versions and licences. Warns of old ones, because what
# is carried along stays as it is.
write_sbom() {
  local line
  while read -r line; do
    printf 'weir: an old package is carried along: %s\n' "$line" >&2
  done < <(old_packages "$1.packages")
  /usr/bin/python3 -B "$(dirname "${BASH_SOURCE[0]}")/make_sbom.py" \
    "$1.packages" "$2" >"$3"
  rm "$1.packages"
}

# sbom_faults SBOM: prints what is wrong with the list of packages in what was
# packed; reads the names of the libraries that are carried along, one a line.
sbom_faults() {
  /usr/bin/python3 - "$1" 3<&0 <<'END'
import json, os, sys

sbom = json.load(open(sys.argv[1], encoding="utf-8"))
if sbom["bomFormat"] != "CycloneDX":
    print("the list of packages is no CycloneDX")
listed = set()
for package in sbom["components"]:
    for field in "name", "version", "purl", "licenses":
        if not package.get(field):
            print(f"package {package.get('name')} has no {field}")
    listed.update(p["value"] for p in package["properties"])
for name in sorted(os.fdopen(3).read().split()):
    if name not in listed:
        print(f"{name} is of no package that is listed")
END
}

# refuse_large WHAT FILE BYTES_MAX PLACE: ends the script if FILE is too large, and
# names the largest files of the folder PLACE, which it was packed from.
refuse_large() {
  local bytes
  bytes=$(stat -c %s "$2")
  [ "$bytes" -gt "$3" ] || return 0
  find "$4" -type f -printf '%s %P\n' | sort -rn | awk 'NR <= 10' >&2
  die "the $1 has $bytes bytes, more than $3; its largest files are above"
}

# mebibytes FILE: prints its size.
mebibytes() {
  stat -c %s "$1" | awk '{ printf "%.1f MiB\n", $1 / 1048576 }'
}

# publish FILE SBOM OUT_DIR: moves both into a folder, the second under the name
# of the first, with their SHA-256 beside them.
publish() {
  local name=${1##*/}
  mv "$1" "$3/$name"
  mv "$2" "$3/$name.cdx.json"
  (cd "$3" && sha256sum "$name" "$name.cdx.json" >"$name.sha256")
}

# elf_faults FILE RPATH HAS: prints what would be wrong with FILE on another
# machine, one fault a line. `HAS LIBRARY` says whether it is carried along.
elf_faults() {
  local file=$1 library newest
  while read -r library; do
    if ! is_glibc "$library" && ! "$3" "$library"; then
      printf 'needs %s, which is not carried along\n' "$library"
    fi
  done < <(needed "$file")
  # No grep -q: it leaves early, and readelf would fail at its next line.
  LC_ALL=C readelf -d "$file" | grep -F "Library rpath: [$2]" >/dev/null ||
    printf 'does not look for its libraries in %s\n' "$2"
  newest=$(LC_ALL=C readelf --version-info "$file" |
    grep -o 'GLIBC_[0-9.]*[0-9]' | sort -Vu | tail -n 1) || true
  newest=${newest#GLIBC_}
  [ "$(printf '%s\n' "$newest" "$glibc_max" | sort -V | tail -n 1)" = \
    "$glibc_max" ] ||
    printf 'needs glibc %s, newer than %s\n' "$newest" "$glibc_max"
  if LC_ALL=C readelf -S "$file" | grep -F .symtab >/dev/null; then
    printf 'is not stripped\n'
  fi
}
