# What a bundle may take from the machine that it runs on; to be sourced.
# shellcheck shell=bash

# Whether glibc itself has this library.
is_glibc() {
  case $1 in
    ld-linux-x86-64.so.2 | libc.so.6 | libm.so.6 | libmvec.so.1) ;;
    libdl.so.2 | libpthread.so.0 | librt.so.1 | libutil.so.1) ;;
    libresolv.so.2 | libanl.so.1) ;;
    *) return 1 ;;
  esac
}

# Whether it belongs to CUDA; only the plug-in may need one.
is_cuda() {
  case $1 in
    libcuda.so.* | libcudart.so.* | libnvrtc.so.*) ;;
    libcublas.so.* | libcublasLt.so.* | libcudnn*.so.*) ;;
    *) return 1 ;;
  esac
}

# The libraries that the ELF file $1 names itself, one a line.
needed() {
  LC_ALL=C readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p'
}
