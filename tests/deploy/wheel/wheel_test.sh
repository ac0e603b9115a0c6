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
[ "$(ls -A "$out")" = "$(printf '%s\n' "${wheel##*/}"{,.cdx.json,.sha256})" ] ||
  fail "$out has more: $(ls -A "$out")"
"$check" "$wheel"

# The same list is inside, and it knows what is compiled in from headers alone.
python3 -m zipfile -e "$wheel" "$TEST_TMPDIR/inside"
cmp "$wheel.cdx.json" "$TEST_TMPDIR"/inside/*.dist-info/sboms/weir.cdx.json
for package in libgrpc++1.51 libssl3 libprotobuf32 zlib1g libcli11-dev; do
  version=$(dpkg-query -W -f '${Version}\n' "$package" | head -n 1)
  grep -A 1 "\"name\": \"$package\"" "$wheel.cdx.json" |
    grep -qF "\"version\": \"$version\"" ||
    fail "the list has no $package $version"
done

status=0
said=$("$make" "$TEST_TMPDIR" "$out" 2>&1) || status=$?
[ "$status" -eq 3 ] || fail "a build without binaries ended with $status"
grep -q '_core.so is not there: ./weir wheel builds it' <<<"$said" ||
  fail "a build without binaries: $said"

# A wheel that was changed on its way is refused.
changed=$TEST_TMPDIR/changed
mkdir "$changed"
cp "$wheel"{,.cdx.json,.sha256} "$changed"
printf ' ' >>"$changed/${wheel##*/}"
if said=$("$check" "$changed/${wheel##*/}" 2>&1); then
  fail "a changed wheel passed: $said"
fi
grep -q 'its SHA-256: FAILED' <<<"$said" || fail "a changed wheel: $said"

# Not for this Python: nothing is installed, and each check says so.
bad=$TEST_TMPDIR/weir-0-cp312-cp312-manylinux_2_36_x86_64.whl
cp "$wheel" "$bad"
if said=$("$check" "$bad" 2>&1); then
  fail "a wheel for Python 3.12 was installed: $said"
fi
grep -q 'pip installs it: FAILED' <<<"$said" || fail "another Python: $said"
