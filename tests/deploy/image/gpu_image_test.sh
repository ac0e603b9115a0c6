#!/usr/bin/env bash
# Makes the GPU's image of libraries that stand for CUDA's, and names what the
# machine or the build lacks.
set -euo pipefail

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

make=$PWD/deploy/image/make_image.sh
build=$TEST_TMPDIR/build
out=$TEST_TMPDIR/dist
site=$TEST_TMPDIR/site-packages
toolkit=$site/nvidia/cu13
labels=(//deploy/cli:weir_cli //worker/compute/cuda:libweir_cuda.so)
export WEIR_CUDA_HOMES=$toolkit

# library NAME PATH FLAG...: a library with nothing in it.
library() {
  mkdir -p "${2%/*}"
  gcc -shared -fPIC -Wl,-soname,"$1" -o "$2" -x c - -x none "${@:3}" \
    <<<'int nothing;'
}

mkdir -p "$build"/{deploy/cli,worker/compute/cuda} "$toolkit"/{bin,include}
gcc -O1 -o "$build/deploy/cli/weir_cli" -x c - <<<'int main(void) { return 0; }'
printf '#!/bin/sh\n' >"$toolkit/bin/nvcc"
chmod +x "$toolkit/bin/nvcc"
touch "$toolkit/include/cublasLt.h"

# refuses WHAT LABEL...: make_image.sh --gpu ends with 2 and says WHAT.
refuses() {
  local said status=0
  said=$("$make" --gpu "$build" "$out" "${@:2}" 2>&1) || status=$?
  [ "$status" -eq 2 ] || fail "it ended with $status, and said: $said"
  grep -qF "$1" <<<"$said" || fail "it does not say '$1': $said"
  [ -z "$(ls -A "$out")" ] || fail "it left $(ls -A "$out")"
}

refuses "the build has no plug-in for GPUs" "${labels[0]}"
library libcublasLt.so.13 "$toolkit/lib/libcublasLt.so.13"
library libweir_cuda.so "$build/worker/compute/cuda/libweir_cuda.so" \
  -Wl,--no-as-needed "$toolkit/lib/libcublasLt.so.13"
refuses "there is no CUDA Toolkit here" "${labels[@]}"
touch "$toolkit/lib/libcudart_static.a"

# A library whose terms nobody knows is not passed on.
status=0
said=$("$make" --gpu "$build" "$out" "${labels[@]}" 2>&1) || status=$?
[ "$status" -eq 3 ] || fail "without a licence it ended with $status: $said"
grep -q 'libcublasLt.so.13 is from no Debian or Python package' <<<"$said" ||
  fail "without a licence: $said"

info=$site/nvidia_cublas-13.0.2.14.dist-info
mkdir "$info"
printf 'nvidia/cu13/lib/libcublasLt.so.13,sha256=x,1\n' >"$info/RECORD"
printf 'the terms\n' >"$info/License.txt"
image=$("$make" --gpu "$build" "$out" "${labels[@]}")
[ "$image" = "$out/weir-$(<VERSION)-image-gpu.tar" ] ||
  fail "the image is called $image"
cmp "$image" "$("$make" --gpu "$build" "$out/again" "${labels[@]}")"
root=$TEST_TMPDIR/root
/usr/bin/python3 -B deploy/image/read_image.py "$image" "$root"
deploy/image/verify_image.sh "$root"
cmp "$root/opt/weir/LICENSES/nvidia-cublas" "$info/License.txt"
grep -q '"purl": "pkg:pypi/nvidia-cublas@13.0.2.14"' "$image.cdx.json" ||
  fail "the list has no cuBLAS"

# Without it the image would start, and then not open the plug-in.
rm "$root/opt/weir/cuda/libcublasLt.so.13"
if said=$(deploy/image/verify_image.sh "$root" 2>&1); then
  fail "an image without cuBLAS passed"
fi
grep -q 'libweir_cuda.so needs libcublasLt.so.13' <<<"$said" ||
  fail "an image without cuBLAS: $said"

# cuDNN comes along with its parts where the machine has it.
for name in libcudnn.so.9 libcudnn_ops.so.9; do
  library "$name" "$site/nvidia/cudnn/lib/$name"
  printf 'nvidia/cudnn/lib/%s,sha256=x,1\n' "$name"
done >"$TEST_TMPDIR/RECORD"
info=$site/nvidia_cudnn_cu13-9.14.0.dist-info
mkdir "$info"
mv "$TEST_TMPDIR/RECORD" "$info/RECORD"
printf 'the terms\n' >"$info/License.txt"
image=$("$make" --gpu "$build" "$out" "${labels[@]}")
/usr/bin/python3 -B deploy/image/read_image.py "$image" "$TEST_TMPDIR/with"
for name in libcudnn.so.9 libcudnn_ops.so.9 libcublasLt.so.13; do
  [ -f "$TEST_TMPDIR/with/opt/weir/cuda/$name" ] || fail "there is no $name"
done
