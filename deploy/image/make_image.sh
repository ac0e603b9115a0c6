#!/usr/bin/env bash
# Packs built programs into the archive of a container image.
#
#   make_image.sh [--gpu] [--source URL] BIN_DIR OUT_DIR LABEL...
#
# The image has no base. It holds what a bundle holds, in /opt/weir, and beside
# that what a bundle takes from its machine: glibc with its loader, the few files
# in /etc that glibc reads, and public CAs. Each LABEL is a Bazel target whose output lies
# below BIN_DIR. --gpu adds CUDA's libraries, in a layer of their own, because
# NVIDIA's container runtime brings those of the driver alone. URL is where
# Weir's source is; a label of the image names it. The archive is read back and
# verified before it gets its name; it is put beside its SHA-256 and a list of
# the packages in it, which is also inside. The same tree gives the same bytes.
# Prints the archive's path.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=/dev/null
. "$root/deploy/bundle/libraries.sh"

bytes_max=40000000 # without CUDA's libraries, which have ten times as much
user=10001

die() {
  printf 'weir: %s\n' "$1" >&2
  exit "${2:-3}"
}

gpu=
source=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --gpu) gpu=gpu ;;
    --source)
      source=${2:-}
      shift
      ;;
    *) die "make_image.sh has no option $1" ;;
  esac
  shift
done
[ $# -ge 3 ] ||
  die "usage: make_image.sh [--gpu] [--source URL] BIN_DIR OUT_DIR LABEL..."
bin_dir=$1
out_dir=$2
shift 2
umask 022
version=$(<"$root/VERSION")
name=weir-$version-image${gpu:+-gpu}.tar
mkdir -p "$out_dir"
work=$(realpath "$(mktemp -d "$out_dir/.image.XXXXXX")") # for scripts that cd
trap 'rm -rf "$work"' EXIT
tree=$work/weir
weir=$tree/opt/weir
cuda=$work/cuda/opt/weir/cuda
licenses=$weir/LICENSES

# Adds glibc as Debian built it, at the paths where programs and loader look.
add_glibc() {
  local name path
  # shellcheck disable=SC2154 # from libraries.sh
  for name in "${glibc_libraries[@]}"; do
    path=/lib/x86_64-linux-gnu/$name
    [[ $name != ld-* ]] || path=/lib64/$name
    [ -f "$path" ] || die "there is no $path: reinstall the package libc6"
    install -D -m 755 "$path" "$tree$path"
    add_license "$path" "$licenses"
  done
}

# Adds the folders of a root directory and the files in /etc that glibc reads.
add_root() {
  # The first three are for runtimes that mount on folders but make none.
  mkdir -p "$tree"/{dev,proc,sys,etc,tmp,run/weir}
  printf '%s:x:%s:%s:%s:%s:/sbin/nologin\n' \
    root 0 0 root / weir "$user" "$user" Weir /run/weir >"$tree/etc/passwd"
  printf '%s:x:%s:\n' root 0 weir "$user" >"$tree/etc/group"
  printf '%s\n' 'passwd: files' 'group: files' 'hosts: files dns' \
    >"$tree/etc/nsswitch.conf"
}

# Adds the CAs that object stores are trusted by: those of the package, and none
# that somebody has added to this machine.
add_authorities() {
  local folder=/usr/share/ca-certificates/mozilla
  [ -d "$folder" ] || die "there is no $folder: reinstall ca-certificates"
  mkdir -p "$tree/etc/ssl/certs"
  find "$folder" -name '*.crt' | LC_ALL=C sort | xargs cat \
    >"$tree/etc/ssl/certs/ca-certificates.crt"
  add_license "$folder" "$licenses"
}

# The folder of a CUDA library on this machine: beside cuBLAS, where pip puts
# cuDNN beside that, and where Debian's packages are.
cuda_folder() {
  local folder
  for folder in "${cublas%/*}" "$toolkit/../cudnn/lib" \
    /usr/lib/x86_64-linux-gnu; do
    if [ -f "$folder/$1" ]; then
      printf '%s\n' "$folder"
      return
    fi
  done
  return 1
}

# add_cuda_license FILE: as add_license, also for a file of a Python package, as
# `./weir setup --cuda` installs them.
add_cuda_license() {
  local path package version record terms info
  path=$(realpath "$1")
  if dpkg -S "$path" >/dev/null 2>&1; then
    add_license "$path" "$licenses"
    return
  fi
  for record in "${path%/nvidia/*}"/*.dist-info/RECORD; do
    grep -qsF "nvidia/${path##*/nvidia/}," "$record" || continue
    info=${record%/RECORD}
    package=${info##*/} # name-version.dist-info
    package=${package%.dist-info}
    version=${package##*-}
    package=${package%-*}
    package=${package//_/-}
    for terms in "$info"/licenses/* "$info"/[Ll][Ii][Cc][Ee][Nn][Ss][Ee]*; do
      [ -f "$terms" ] || continue
      install -D -m 644 "$terms" "$licenses/$package"
      printf 'pypi:%s@%s %s\n' "$package" "$version" "${1##*/}" \
        >>"$licenses.packages"
      return
    done
  done
  die "$1 is from no Debian or Python package that has its licence: let ./weir setup --cuda install a Toolkit, with no CUDA_HOME set"
}

# add_cuda NAME: adds a CUDA library and those that it needs. The driver's comes
# from the machine.
add_cuda() {
  local folder library
  [ ! -e "$cuda/$1" ] || return 0
  folder=$(cuda_folder "$1") ||
    die "the GPU's plug-in needs $1, which is not beside the CUDA Toolkit here: ./weir setup --cuda installs it" 2
  install -D -m 644 "$folder/$1" "$cuda/$1"
  add_cuda_license "$folder/$1"
  while read -r library; do
    if is_cuda "$library" && [[ $library != libcuda.so.* ]]; then
      add_cuda "$library"
    fi
  done < <(needed "$folder/$1")
}

# Adds what the plug-in names, and cuDNN if this machine has it: the plug-in
# computes convolutions with it where it is there.
add_cuda_libraries() {
  local library path folder
  while read -r library; do
    if is_cuda "$library"; then
      add_cuda "$library"
    fi
  done < <(needed "$weir/lib/libweir_cuda.so")
  if folder=$(cuda_folder libcudnn.so.9); then
    for path in "$folder"/libcudnn*.so.9; do # it opens its parts by name
      add_cuda "${path##*/}"
    done
  else
    printf 'weir: there is no libcudnn.so.9 here: the image will compute convolutions without cuDNN\n' >&2
  fi
}

add_weir "$bin_dir" "$weir" "$@"
ln -s weir_cli "$weir/bin/weir"
add_glibc
add_root
add_authorities
layers=("$tree")
if [ -n "$gpu" ]; then
  [ -f "$weir/lib/libweir_cuda.so" ] ||
    die "the build has no plug-in for GPUs: ./weir image --gpu builds it" 2
  found=$("$root/third_party/cuda/find_toolkit.sh") ||
    die "there is no CUDA Toolkit here, whose cuBLAS the image needs: ./weir setup --cuda installs one" 2
  IFS='|' read -r toolkit _ cublas _ <<<"$found"
  add_cuda_libraries
  # The lower layer is the one that stays when only Weir changes.
  layers=("$work/cuda" "$tree")
fi
write_sbom "$licenses" "$version" "$weir/sbom.cdx.json"
digest=$(/usr/bin/python3 -B "$here/write_image.py" --version "$version" \
  --source "$source" --out "$work/$name" ${gpu:+--gpu} "${layers[@]}")
read=$(/usr/bin/python3 -B "$here/read_image.py" "$work/$name" "$work/root") ||
  die "the archive that was written is not an image"
[ "$read" = "$digest" ] || die "the archive has the digest $read, not $digest"
"$here/verify_image.sh" "$work/root"
[ -n "$gpu" ] || refuse_large image "$work/$name" "$bytes_max" "$tree"
publish "$work/$name" "$weir/sbom.cdx.json" "$out_dir"
printf '%s\n' "$out_dir/$name"
printf 'weir: %s, %s, %s\n' "$out_dir/$name" "$(mebibytes "$out_dir/$name")" \
  "$digest" >&2
