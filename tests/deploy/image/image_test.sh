#!/usr/bin/env bash
# Makes an image of this build twice, and tries it.
set -euo pipefail

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

make=$PWD/deploy/image/make_image.sh
check=$PWD/deploy/image/check_image.sh
labels=(
  //deploy/cli:weir_cli
  //server/chief:weir_chief
  //server/ps:weir_ps
  //worker:weir_evaluator
  //worker:weir_worker
)
out=$TEST_TMPDIR/dist

image=$("$make" . "$out" "${labels[@]}")
[ "$image" = "$out/weir-$(<VERSION)-image.tar" ] ||
  fail "the image is called $image"
[ "$(ls -A "$out")" = "$(printf '%s\n' "${image##*/}"{,.cdx.json,.sha256})" ] ||
  fail "$out has more: $(ls -A "$out")"

# Another caller, another day, another order of the programs: the same bytes.
mapfile -t reversed < <(printf '%s\n' "${labels[@]}" | tac)
again=$(
  umask 077
  TZ=Asia/Tokyo LC_ALL=C.UTF-8 "$make" . "$out/again" "${reversed[@]}"
)
cmp "$image" "$again"
cmp "$image.cdx.json" "$again.cdx.json"

"$check" "$image"

# The list knows glibc as well as what is compiled in from headers alone.
for package in libc6 libgrpc++1.51 libssl3 libprotobuf32 libcli11-dev; do
  version=$(dpkg-query -W -f '${Version}\n' "$package" | head -n 1)
  grep -A 1 "\"name\": \"$package\"" "$image.cdx.json" |
    grep -qF "\"version\": \"$version\"" ||
    fail "the list has no $package $version"
done

status=0
said=$("$make" "$TEST_TMPDIR" "$out" "${labels[@]}" 2>&1) || status=$?
[ "$status" -eq 3 ] || fail "a build without binaries ended with $status"
grep -q 'weir_cli is not there: ./weir build //deploy/cli:weir_cli' \
  <<<"$said" || fail "a build without binaries: $said"

# An image that was changed on its way is refused, and nothing of it is run.
changed=$TEST_TMPDIR/changed
mkdir "$changed"
cp "$image"{,.cdx.json,.sha256} "$changed"
printf ' ' >>"$changed/${image##*/}"
if said=$("$check" "$changed/${image##*/}" 2>&1); then
  fail "a changed image passed: $said"
fi
grep -q 'its SHA-256: FAILED' <<<"$said" || fail "a changed image: $said"
! grep -q 'starts' <<<"$said" || fail "a changed image was started: $said"

# Without a library of glibc it would not run, and the check says why.
verify=$PWD/deploy/image/verify_image.sh
root=$TEST_TMPDIR/root
/usr/bin/python3 -B deploy/image/read_image.py "$image" "$root"
"$verify" "$root"
rm "$root/lib/x86_64-linux-gnu/libm.so.6"
if said=$("$verify" "$root" 2>&1); then
  fail "an image without libm passed"
fi
grep -q 'needs libm.so.6, which the image does not have' <<<"$said" ||
  fail "an image without libm: $said"
