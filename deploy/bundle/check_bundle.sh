#!/usr/bin/env bash
# Runs a bundle where there is nothing but glibc and a shell.
#
#   check_bundle.sh ARCHIVE
#
# Unpacks it below a root directory of its own, which has glibc's libraries and
# a few programs that need no others, starts every program of the bundle there
# and trains examples/digits.textproto to its end twice: as root, and as another
# user with the bundle mounted read-only. Prints one line per check; ends with 1
# if one failed. Needs root that may mount.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin # chroot

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=/dev/null
. "$here/checks.sh"
# shellcheck source=/dev/null
. "$here/libraries.sh"

nobody=65534
seconds_max=900 # of one check

archive=${1:?usage: check_bundle.sh ARCHIVE}
[ -f "$archive" ] || die "there is no $archive"
if [ "$(id -u)" -ne 0 ] || ! unshare --mount true 2>/dev/null; then
  die "the check makes a root directory of its own: run it as root that may mount"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bare=$work/root
place="/opt/a place" # a path with a space

# Copies program $1 and the libraries of glibc that it needs, at their paths.
copy_program() {
  local library path
  install -D "$(command -v "$1")" "$bare/bin/$1"
  while read -r library; do
    is_glibc "$library" || die "$1 of this machine needs $library" 3
  done < <(needed "$bare/bin/$1")
}

make_bare_root() {
  local path
  mkdir -p "$bare"/{bin,dev/shm,proc,tmp,lib64,lib/x86_64-linux-gnu,"$place"}
  chmod 1777 "$bare/tmp" "$bare/dev/shm"
  touch "$bare"/dev/{null,urandom}
  for path in sh readlink dirname; do
    copy_program "$path"
  done
  while read -r path; do
    cp -L "$path" "$bare/lib/x86_64-linux-gnu/"
  done < <(dpkg -L libc6 | grep '^/lib/x86_64-linux-gnu/.*\.so')
  cp -L /lib64/ld-linux-x86-64.so.2 "$bare/lib64/"
}

# inside USER rw|ro SCRIPT: runs SCRIPT in the bare root, where $1 is the bundle.
# Its mounts end with it.
inside() {
  # shellcheck disable=SC2016
  timeout "$seconds_max" unshare --mount sh -euc '
    bare=$1 place=$2 bundle=$3 user=$4 mode=$5 script=$6
    mount --bind "$bare$place" "$bare$place"
    mount -o "remount,bind,$mode" "$bare$place"
    mount --rbind /proc "$bare/proc"
    mount -t tmpfs none "$bare/dev/shm"
    mount --bind /dev/null "$bare/dev/null"
    mount --bind /dev/urandom "$bare/dev/urandom"
    exec env -i PATH=/bin "$(command -v chroot)" --userspec="$user:$user" "$bare" \
      /bin/sh -euc "cd /tmp; $script" sh "$place/$bundle"
  ' sh "$bare" "$place" "$bundle" "$@"
}

# train USER rw|ro NAME: a whole run.
train() {
  # shellcheck disable=SC2016
  inside "$1" "$2" '
    exec "$1/weir" train "$1/examples/digits.textproto" --ps 2 --workers 2 \
      --workdir "/tmp/'"$3"'"' &&
    grep -q '"status": "done"' "$bare/tmp/$3/summary.json"
}

# Through a link, as an installed command is called.
refuses_to_build() {
  local status=0
  # shellcheck disable=SC2016
  inside 0 ro 'exec /bin/weir build' || status=$?
  [ "$status" -eq 2 ]
}

starts() {
  # shellcheck disable=SC2016
  inside "$nobody" ro 'exec "$1/bin/'"$1"'" --help'
}

make_bare_root
tar -C "$bare$place" -xzf "$archive"
bundle=$(ls "$bare$place")
ln -s "$place/$bundle/weir" "$bare/bin/weir"

check "its SHA-256" has_checksum "$archive"
check "needs glibc 2.36 alone" "$here/verify_bundle.sh" "$bare$place/$bundle"
for path in "$bare$place/$bundle"/bin/*; do
  [ -d "$path" ] || check "${path##*/} starts" starts "${path##*/}"
done
check "refuses what it does not have" refuses_to_build
check "trains digits, 2 ps, 2 workers" train 0 rw root
check "trains as another user, read-only" train "$nobody" ro user
end_checks "$archive"
