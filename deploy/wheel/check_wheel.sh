#!/usr/bin/env bash
# Installs a wheel where there is nothing of Weir, and trains with it.
#
#   check_wheel.sh WHEEL
#
# A virtual environment of its own, with this machine's NumPy. As root that may
# mount, it also hides Debian's gRPC and all else that the wheel carries along,
# as on a user's machine. Prints one line per check; ends with 1 if one failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=/dev/null
. "$here/../bundle/checks.sh"
# shellcheck source=/dev/null
. "$here/../bundle/libraries.sh"

seconds_max=120 # of one check

wheel=${1:?usage: check_wheel.sh WHEEL}
[ -f "$wheel" ] || die "there is no $wheel"
wheel=$(realpath "$wheel")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
venv="$work/a place" # a path with a space
# Nothing of the caller's Python, build or cluster.
unset PYTHONPATH PYTHONHOME LD_LIBRARY_PATH WEIR_BIN_DIR TF_CONFIG WEIR_PS
cd "$work"

installs() {
  /usr/bin/python3 -m venv --without-pip --system-site-packages "$venv" &&
    /usr/bin/python3 -m pip --python "$venv/bin/python" install --no-index \
      --no-deps --disable-pip-version-check "$wheel"
}

# The files of Debian's packages that the wheel has libraries of, and that
# NumPy and Python do not need.
carried_along() {
  local path
  for path in "$package"/_libs/lib*-weir.so*; do
    path=${path##*/}
    case $path in
      libcrypto-* | libssl-* | libz-* | libgomp-*) ;;
      *) realpath -q "/usr/lib/x86_64-linux-gnu/${path/-weir/}" ;;
    esac
  done
}

# Nothing is missing, and nothing is from outside but what a Python has: glibc
# and, for the extension, gcc's two libraries.
finds_its_own() {
  local path found name at
  for path in "$package"/_core.*.so "$package"/_bin/*/weir_* \
    "$package"/_bin/*/*/weir_*; do
    found=$(ldd "$path")
    while read -r name _ at; do
      at=${at% (*}
      case $name:$at in
        linux-vdso.so.1:* | /lib64/ld-linux-x86-64.so.2:*) continue ;;
        libstdc++.so.6:/* | libgcc_s.so.1:/*)
          [[ $path != */_core.* ]] || continue
          ;;
      esac
      is_glibc "$name" && [[ $at == /* ]] && continue
      [[ $(realpath -m "$at") == "$(realpath "$package")"/* ]] ||
        printf '%s: %s => %s\n' "${path##*/}" "$name" "$at"
    done <<<"$found"
  done | tee "$work/outside"
  [ ! -s "$work/outside" ]
}

trains() {
  timeout "$seconds_max" "$venv/bin/weir" run --ps 2 --workers 2 -- \
    "$venv/bin/python" train.py | tee trained &&
    [ "$(grep -c trained trained)" -eq 2 ]
}

# The same where each of those files is empty; the mounts end with it.
trains_without_debian() {
  local hide
  carried_along >"$work/hide"
  [ -s "$work/hide" ] || die "there is nothing to hide"
  export venv seconds_max
  export -f trains
  # shellcheck disable=SC2016
  hide='while read -r path; do mount --bind /dev/null "$path"; done <"$1"
    trains'
  unshare --mount bash -euo pipefail -c "$hide" bash "$work/hide"
}

# Both orders: neither may take the other's libraries.
imports_beside_torch() {
  local order
  for order in "torch, weir.torch" "weir.torch, torch"; do
    "$venv/bin/python" -c "import $order
weir.torch.init()
torch.nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()"
  done
}

launches() {
  "$venv/bin/python" -m weir --help && "$venv/bin/weir" train --help
}

starts_by_hand() {
  local name
  for name in weir_ps weir_chief; do
    "$venv/bin/$name" --help | grep -q -- --task_index || return
  done
}

names_a_wrong_word() {
  ! "$venv/bin/python" -m weir wrong 2>said || return
  grep -qxF "weir: unknown command 'wrong'; try weir --help" said
}

carries_its_licence() {
  local found=("$package"/../weir-*.dist-info/licenses/LICENSE)
  grep -q 'Apache License' "${found[0]}"
}

lists_its_packages() {
  local path
  for path in "$package"/_libs/lib*-weir.so*; do
    path=${path##*/}
    printf '%s\n' "${path/-weir/}"
  done | sbom_faults "$package"/../weir-*.dist-info/sboms/weir.cdx.json |
    tee "$work/unlisted"
  [ ! -s "$work/unlisted" ]
}

same_version() {
  "$venv/bin/python" -c "import importlib.metadata, weir
versions = weir.__version__, importlib.metadata.version('weir')
assert versions[0] == versions[1], versions"
}

cat >train.py <<'END'
import numpy as np
import weir

client = weir.connect()
client.declare({"w": np.zeros(10)}, optimizer=weir.SGD(lr=0.5))
for step in range(client.pushes, 50):
    client.push_pull({"w": client.values["w"] - 1})
assert np.allclose(client.values["w"], 1), client.values["w"]
print("trained")
END
check "its SHA-256" has_checksum "$wheel"
check "pip installs it" installs
package=$(echo "$venv"/lib/python3.*/site-packages/weir)
[ -d "$package" ] || die "there is no $package" 1
check "has all it needs" finds_its_own
check "python -m weir" launches
check "weir_ps and weir_chief" starts_by_hand
check "names a wrong word" names_a_wrong_word
check "its version" same_version
check "its licence" carries_its_licence
check "its list of packages" lists_its_packages
check "trains, 2 ps, 2 workers" trains
if "$venv/bin/python" -c 'import torch' 2>/dev/null; then
  check "imports beside PyTorch" imports_beside_torch
fi
if [ "$(id -u)" -eq 0 ] && unshare --mount true 2>/dev/null; then
  check "trains without Debian's gRPC" trains_without_debian
else
  printf 'wheel: without Debian'\''s gRPC: not tried, it wants root\n'
fi
end_checks "$wheel"
