# Says what Weir may take from the machine that it runs on, and carries the rest
# along. To be sourced by a script that has a function die.
# shellcheck shell=bash

glibc_max=2.36 # Debian 12

# Whether glibc itself has this library.
is_glibc() {
  case $1 in
    ld-linux-x86-64.so.2 | libc.so.6 | libm.so.6 | libmvec.so.1) ;;
    libdl.so.2 | libpthread.so.0 | librt.so.1 | libutil.so.1) ;;
    libresolv.so.2 | libanl.so.1) ;;
    *) return 1 ;;
  esac
}

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

# add_license FILE LICENSES: copies the terms of the Debian package that FILE is
# from, and the licences that they refer to.
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
