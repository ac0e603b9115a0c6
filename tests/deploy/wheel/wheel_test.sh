#!/usr/bin/env bash
# Makes a wheel of this build, installs it and trains with it; names what a
# build lacks.
set -euo pipefail

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

make=$PWD/deploy/wheel/make_wheel.sh
check=$PWD/deploy/wheel/check_wheel.sh
out=$TEST_TMPDIR/dist

wheel=$("$make" . "$out")
[ "$wheel" = "$out/weir-$(<VERSION)-cp311-cp311-manylinux_2_36_x86_64.whl" ] ||
  fail "the wheel is called $wheel"
[ "$(ls -A "$out")" = "${wheel##*/}" ] || fail "$out has more: $(ls -A "$out")"
"$check" "$wheel"

status=0
said=$("$make" "$TEST_TMPDIR" "$out" 2>&1) || status=$?
[ "$status" -eq 3 ] || fail "a build without binaries ended with $status"
grep -q '_core.so is not there: ./weir wheel builds it' <<<"$said" ||
  fail "a build without binaries: $said"

# Not for this Python: nothing is installed, and each check says so.
bad=$TEST_TMPDIR/weir-0-cp312-cp312-manylinux_2_36_x86_64.whl
cp "$wheel" "$bad"
if said=$("$check" "$bad" 2>&1); then
  fail "a wheel for Python 3.12 was installed: $said"
fi
grep -q 'pip installs it: FAILED' <<<"$said" || fail "another Python: $said"
