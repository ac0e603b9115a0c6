#!/usr/bin/env bash
# Tries an image, at first without any container tool.
#
#   check_image.sh ARCHIVE
#
# Checks the archive's digests and files. As root that may mount, it then starts
# the programs as a strict cluster does: as user 10001 with no capability, with a
# read-only root directory in which only /tmp and /run/weir are written; and
# trains examples/digits.textproto for some steps. Where podman is installed, it
# loads the archive into a storage of its own, runs it in the same way, and
# trains with three containers that know one another by DNS names. Prints one
# line per check; ends with 1 if one failed.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin # chroot, runc

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=/dev/null
. "$here/../bundle/checks.sh"

seconds_max=300 # of one check
user=10001
job=/opt/weir/examples/digits.textproto
steps=(--set train.steps=200)
# Below the hard limits of any machine: podman's own limits may be above them.
limits='"nofile=4096:4096", "nproc=4096:4096"'

archive=${1:?usage: check_image.sh ARCHIVE}
[ -f "$archive" ] || die "there is no $archive"
archive=$(realpath "$archive")
work=$(mktemp -d)
image=$work/root
network=weir-check-$$
trap 'end_podman; rm -rf "$work"' EXIT

is_an_image() {
  digest=$(/usr/bin/python3 -B "$here/read_image.py" "$archive" "$image")
}

# inside COMMAND...: runs a command of the image. The mounts end with it, and so
# do its processes.
inside() {
  # shellcheck disable=SC2016
  timeout "$seconds_max" unshare --mount --pid --fork --kill-child sh -euc '
    image=$1 user=$2
    shift 2
    mount --bind "$image" "$image"
    mount -o remount,bind,ro,nosuid "$image"
    mount -t proc none "$image/proc"
    mount -t tmpfs -o mode=755 none "$image/dev"
    mkdir -m 1777 "$image/dev/shm"
    for device in null urandom; do
      touch "$image/dev/$device"
      mount --bind "/dev/$device" "$image/dev/$device"
    done
    mount -t tmpfs -o mode=1777 none "$image/tmp"
    mount -t tmpfs -o mode=1777 none "$image/run/weir"
    exec env -i PATH=/opt/weir/bin "$(command -v setpriv)" --no-new-privs \
      "$(command -v chroot)" --userspec="$user:$user" --groups= "$image" "$@"
  ' sh "$image" "$user" "$@"
}

says_its_version() {
  [ "$("$@" weir version)" = "$(<"$image/opt/weir/VERSION")" ]
}

# The run is over and has left its result, says the summary.
is_done() { tee "$work/run" && grep -Eq '^ *status +done$' "$work/run"; }

trains() {
  inside weir train "$job" "${steps[@]}" --ps 2 --workers 2 \
    --workdir /run/weir/run 2>&1 | is_done
}

# Without a writable place a run ends with a message, not with a crash.
names_a_read_only_place() {
  local status=0
  inside weir train "$job" --workdir /opt/run >"$work/said" 2>&1 || status=$?
  cat "$work/said"
  [ "$status" -eq 2 ] || [ "$status" -eq 4 ] && grep -q /opt/run "$work/said"
}

# podman with a storage and settings of this check alone. The list of networks
# is the machine's, so that no other network has the same addresses.
podman() {
  CONTAINERS_CONF=$work/containers.conf HOME=$work timeout "$seconds_max" \
    "$podman" --root "$work/storage" --runroot "$work/state" "$@"
}

podman_settings() {
  printf '[containers]\ndefault_ulimits = [%s]\n' "$limits"
  # crun of Debian 12 refuses a machine with both kinds of cgroups.
  ! command -v runc >/dev/null || printf '[engine]\nruntime = "runc"\n'
  [ ! -x /usr/lib/podman/netavark ] ||
    printf '[network]\nnetwork_backend = "netavark"\n'
}

end_podman() {
  [ -e "$work/containers.conf" ] || return 0
  podman rm --all --force --time 0 || true
  podman network rm --force "$network" || true
  podman rmi --all --force || true
  umount "$work/storage/overlay" || true
} >/dev/null 2>&1

loads() {
  podman load -i "$archive" && podman tag "weir:$tag" weir:check &&
    [ "$(podman inspect --format '{{.Digest}}' weir:check)" = "$digest" ]
}

strict=(
  --read-only --read-only-tmpfs=false --cap-drop=all
  --security-opt=no-new-privileges --user "$user" --tmpfs /tmp
)

runs() {
  podman run --rm "${strict[@]}" --network none --tmpfs /run/weir \
    weir:check train "$job" "${steps[@]}" --ps 2 --workers 2 \
    --workdir /run/weir/run 2>&1 | is_done
}

# task NAME PROGRAM ARGUMENT...: starts a task of the cluster in a container of
# its own.
task() {
  podman run --detach --name "$1" --hostname "$1" "${strict[@]}" \
    --network "$network:alias=$1.job" --volume "$work/run.d:/run/weir" \
    --env WEIR_SECRET --env WEIR_CLUSTER --env WEIR_TASK_INDEX=0 \
    --env "WEIR_TASK_TYPE=${2#weir_}" --entrypoint "$2" weir:check "${@:3}"
}

# The ps, the chief and the worker reach one another by names of a network. Each
# looks up those that started before it: while podman's DNS server (1.4) takes a
# new name, it loses queries, and gRPC's resolver may wait half a minute for the
# answer to one.
runs_as_a_cluster() {
  local code
  WEIR_SECRET=$(inside weir secret)
  WEIR_CLUSTER='ps=ps.job:2222;chief=chief.job:2222;worker=worker.job:2222'
  export WEIR_SECRET WEIR_CLUSTER
  install -d -m 700 -o "$user" -g "$user" "$work/run.d"
  podman network create "$network" &&
    task ps weir_ps --checkpoint_root /run/weir/checkpoints &&
    task chief weir_chief --job "$job" "${steps[@]}" --workdir /run/weir &&
    task worker weir_worker --job "$job" "${steps[@]}" || return
  code=$(podman wait chief) || true # empty when the time is over
  podman logs chief
  podman logs worker
  [ "$code" = 0 ] && [ -s "$work/run.d/train.jsonl" ]
}

check "its SHA-256" has_checksum "$archive"
check "is an OCI and a Docker archive" is_an_image
# shellcheck disable=SC2154 # from checks.sh
[ "$failed" -gt 0 ] || check "has all it needs" "$here/verify_image.sh" "$image"
end_checks "$archive" # nothing of it is run
if [ "$(id -u)" -eq 0 ] && unshare --mount true 2>/dev/null; then
  for path in "$image"/opt/weir/bin/weir*; do
    check "${path##*/} starts" inside "${path##*/}" --help
  done
  check "says its version" says_its_version inside
  check "trains, read-only, without a capability" trains
  check "names a place that it cannot write" names_a_read_only_place
  if podman=$(type -P podman); then # not the function above
    podman_settings >"$work/containers.conf"
    tag=$(<"$image/opt/weir/VERSION")
    [ ! -d "$image/opt/weir/cuda" ] || tag=$tag-gpu
    check "podman loads it" loads
    check "podman runs it, read-only, without a capability" runs
    check "three containers find one another by name" runs_as_a_cluster
  else
    printf 'image: with podman: not tried, it is not installed\n'
  fi
else
  printf 'image: starting it: not tried, it wants root\n'
fi
end_checks "$archive"
