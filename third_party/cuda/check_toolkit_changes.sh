#!/usr/bin/env bash
# Shows that a CUDA Toolkit may come, go and change between any two commands.
#
#   check_toolkit_changes.sh
#
# Gives a Bazel with a fresh output base pretended toolkits (whose nvcc writes
# a word of its own) and loads, analyses and runs what depends on @cuda: as the
# first commands on a fresh machine do, without and then with a toolkit, and in
# other orders. Prints one line per command; ends with 1 if one failed.
# Takes half a minute on two idle cores and compiles nothing of Weir.
set -euo pipefail
shopt -s nullglob

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'run_bazel shutdown; chmod -R u+w "$work"; rm -rf "$work"' EXIT
log=$work/log
failed=0

# Where a toolkit is looked for: two places, with paths of different lengths.
short=$work/a
long=$work/a_toolkit_with_a_much_longer_path
export WEIR_CUDA_HOMES=$short:$long

run_bazel() {
  (cd "$root" && bazel --output_base="$work/out" --max_idle_secs=60 "$@") \
    >"$log" 2>&1
}

# make_toolkit HOME SAYS
make_toolkit() {
  mkdir -p "$1"/{bin,include,lib64}
  touch "$1/include/cublasLt.h" "$1/lib64/"{libcublasLt.so.13,libcudart_static.a}
  # shellcheck disable=SC2016 # the pretended nvcc expands it
  printf '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho "%s" >"$2"\n' \
    "$2" >"$1/bin/nvcc"
  chmod +x "$1/bin/nvcc"
}

# expect SAYS [OPTIONS]: what depends on @cuda is analysed, and a kernel is
# compiled by the nvcc that says SAYS; with "none", such targets do not exist.
expect() {
  local says=$1 kernel=//worker/compute/cuda:elementwise_nvcc got=none ok=yes
  local -a objects=()
  shift
  run_bazel build --nobuild --symlink_prefix=/ "$@" //worker/compute/cuda/... ||
    ok=no
  if [ "$says" = none ]; then
    ! run_bazel query "$kernel" || got="the target $kernel"
  elif [ "$ok" = yes ]; then
    run_bazel build --symlink_prefix=/ --disk_cache= "$@" "$kernel" || ok=no
    objects=("$work"/out/execroot/weir/bazel-out/*/bin/worker/compute/cuda/*.o)
    got=$(cat /dev/null "${objects[@]}")
    rm -f "${objects[@]}"
  fi
  if [ "$ok" = yes ] && [ "$got" = "$says" ]; then
    printf 'ok      toolkit %s %s\n' "$says" "$*"
  else
    failed=1
    printf 'FAILED  toolkit %s %s: got %s; Bazel said:\n' "$says" "$*" "$got"
    tail -n 20 "$log"
  fi
}

expect none
make_toolkit "$long" first
expect first --config=asan # the second command of a fresh machine
make_toolkit "$short" second # another place comes first
expect second
make_toolkit "$short" third # another compiler at the same place
expect third
rm -r "$short" "$long"
expect none --config=asan
make_toolkit "$short" fourth # seen by the same command again
expect fourth --config=asan
rm -r "$short"
expect none
exit "$failed"
