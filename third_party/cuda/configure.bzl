"""Finds the CUDA Toolkit and makes the repository @cuda from it.

Looked for, in this order: $CUDA_HOME, /usr/local/cuda, and where
`./weir setup --cuda` puts one; it must have nvcc, the runtime and cuBLASLt.
Where there is none, @cuda is empty and its cuda.bzl says HAS_CUDA = False;
targets that need CUDA then do not exist.
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

# The runtime's and cuBLAS's interfaces, for code that gcc or clang compiles.
cc_library(
    name = "headers",
    hdrs = glob(
        ["include/*.h", "include/*.hpp", "include/crt/*"],
        allow_empty = True,
    ),
    includes = ["include"],
)

# The runtime, inside of what links it; cuBLASLt, from the machine it runs on.
cc_library(
    name = "libraries",
    linkopts = {linkopts},
)
"""

def _find_library(repository_ctx, home, prefix):
    for folder in ["lib64", "lib"]:
        path = repository_ctx.path(home + "/" + folder)
        if path.exists:
            names = sorted([f.basename for f in path.readdir()])
            for name in names:
                if name == prefix or name.startswith(prefix + "."):
                    return (str(path), name)
    return None

def _toolkit(repository_ctx, home):
    """Link options of the toolkit at home; None unless it is whole."""
    for needed in ["bin/nvcc", "include/cublasLt.h"]:
        if not repository_ctx.path(home + "/" + needed).exists:
            return None
    runtime = _find_library(repository_ctx, home, "libcudart_static.a")
    cublas = _find_library(repository_ctx, home, "libcublasLt.so")
    if runtime == None or cublas == None:
        return None
    return [
        "-L" + runtime[0],
        "-l:" + runtime[1],
        "-L" + cublas[0],
        "-l:" + cublas[1],
        # Where to look at run time: here, then where the Toolkit installs.
        "-Wl,-rpath," + cublas[0],
        "-Wl,-rpath,/usr/local/cuda/lib64",
        "-ldl",
        "-lpthread",
        "-lrt",
    ]

def _cuda_configure_impl(repository_ctx):
    environ = repository_ctx.os.environ
    cache = environ.get("XDG_CACHE_HOME", environ.get("HOME", "/root") + "/.cache")
    homes = [
        environ.get("CUDA_HOME", ""),
        "/usr/local/cuda",
        cache + "/weir/cuda-13.0/nvidia/cu13",
    ]
    nvcc = ""
    has_cudnn = False
    linkopts = []
    for home in homes:
        toolkit = _toolkit(repository_ctx, home) if home else None
        if toolkit != None:
            nvcc = home + "/bin/nvcc"
            has_cudnn = repository_ctx.path(home + "/include/cudnn.h").exists
            repository_ctx.symlink(home + "/include", "include")
            linkopts = toolkit
            break
    repository_ctx.file("BUILD", _BUILD.format(linkopts = repr(linkopts)))
    repository_ctx.file("cuda.bzl", "\n".join([
        "HAS_CUDA = %s" % bool(nvcc),
        "HAS_CUDNN = %s" % has_cudnn,
        "NVCC = %s" % repr(nvcc),
        "",
    ]))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["CUDA_HOME", "HOME", "XDG_CACHE_HOME"],
    local = True,
)
