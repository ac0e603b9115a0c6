"""Compiles .cu files with nvcc."""

load("@cuda//:cuda.bzl", "HAS_CUDA", "NVCC")

# Machine code for Ampere and Hopper, and what later ones compile for themselves.
_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=sm_90",
    "-gencode=arch=compute_90,code=compute_90",
]

def cuda_library(name, src, hdrs, deps = [], textual_hdrs = []):
    """One cc_library for one .cu file; none where there is no CUDA.

    Args:
      name: the library's name.
      src: the .cu file.
      hdrs: its interface.
      deps: cc_library targets whose headers `hdrs` include.
      textual_hdrs: further files that `src` includes.
    """
    if not HAS_CUDA:
        return
    native.genrule(
        name = name + "_nvcc",
        srcs = [src] + hdrs + textual_hdrs,
        outs = [name + ".pic.o"],
        cmd = " ".join([
            NVCC,
            "-std=c++20 -O3 -lineinfo",
            "-Xcompiler -fPIC,-Wall,-ffp-contract=off",
            "--expt-relaxed-constexpr",
            "-I.",
        ] + _ARCHITECTURES + ["-c $(location %s) -o $@" % src]),
        message = "Compiling %s with nvcc" % src,
        # Another compiler at the same place compiles anew.
        tools = ["@cuda//:nvcc"],
    )
    native.cc_library(
        name = name,
        srcs = [name + ".pic.o"],
        hdrs = hdrs,
        deps = deps,
        # Wherever it stands among what needs it.
        alwayslink = True,
    )
