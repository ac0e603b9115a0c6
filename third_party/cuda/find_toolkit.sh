#!/usr/bin/env bash
# Finds the CUDA Toolkit that Weir builds with.
#
# Prints it as one line, "HOME|RUNTIME|CUBLASLT|CUDNN": its folder, the runtime's
# static library, cuBLASLt's shared library, and "cudnn" if its header is there.
# Prints nothing and ends with 1 where there is none. It looks in $CUDA_HOME,
# in /usr/local/cuda, and where `./weir setup --cuda` puts one, in this order,
# for a toolkit with nvcc, the runtime and cuBLASLt. A check names other places,
# separated by colons, in $WEIR_CUDA_HOMES.
set -euo pipefail
shopt -s nullglob

# library HOME PREFIX: prints the first file of that name or a version of it.
library() {
  local files=("$1"/lib64/"$2"{,.*} "$1"/lib/"$2"{,.*}) file
  for file in "${files[@]}"; do
    if [ -e "$file" ]; then
      printf '%s' "$file"
      return 0
    fi
  done
  return 1
}

cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}
homes=("${CUDA_HOME:-}" /usr/local/cuda "$cache/weir/cuda-13.0/nvidia/cu13")
if [ -n "${WEIR_CUDA_HOMES:-}" ]; then
  IFS=: read -r -a homes <<<"$WEIR_CUDA_HOMES"
fi
for home in "${homes[@]}"; do
  if [ -n "$home" ] && [ -x "$home/bin/nvcc" ] &&
    [ -e "$home/include/cublasLt.h" ] &&
    runtime=$(library "$home" libcudart_static.a) &&
    cublas=$(library "$home" libcublasLt.so); then
    cudnn=
    [ ! -e "$home/include/cudnn.h" ] || cudnn=cudnn
    printf '%s|%s|%s|%s\n' "$home" "$runtime" "$cublas" "$cudnn"
    exit 0
  fi
done
exit 1
