"""Compiles .cu files with nvcc."""

load("@cuda//:cuda.bzl", "HAS_CUDA", "NVCC")

# Machine code for Ampere and Hopper, and PTX that later GPUs' drivers compile.
_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=sm_90",
    "-gencode=arch=compute_90,code=compute_90",
]

def cuda_library(name, src, hdrs, deps = [], textual_hdrs = []):
    """Makes one cc_library of one .cu file; makes none where there is no CUDA.

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
        # An input, so that another compiler at the same place compiles anew.
        tools = ["@cuda//:nvcc"],
    )
    native.cc_library(
        name = name,
        srcs = [name + ".pic.o"],
        hdrs = hdrs,
        deps = deps,
        # Linked whole, in whatever order a program names its libraries.
        alwayslink = True,
    )
