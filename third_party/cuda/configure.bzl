"""Makes the repository @cuda from the CUDA Toolkit that find_toolkit.sh names.

Where there is none, @cuda is empty and its cuda.bzl says HAS_CUDA = False;
targets that need CUDA then do not exist.

A toolkit may come, go or change between two commands. Bazel writes a repository
anew when something in `environ` has another value, and then also reads its files
anew. So tools/bazel, which `bazel` runs, puts find_toolkit.sh's answer into
WEIR_CUDA_TOOLKIT before each command. The repository may not be `local`: Bazel
4.2.3 writes a local one anew at other times as well, for instance when
--repo_env changes, keeps the sizes that it knows of the old files for that
command, and reads the new ones only so far. check_toolkit_changes.sh tries all
this.
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

exports_files(["nvcc"])

# The headers of the runtime and of cuBLAS, for code that gcc or clang compiles.
cc_library(
    name = "headers",
    hdrs = glob(
        ["include/*.h", "include/*.hpp", "include/crt/*"],
        allow_empty = True,
    ),
    includes = ["include"],
)

# The runtime is linked statically. cuBLASLt comes from the machine on which the
# program runs.
cc_library(
    name = "libraries",
    linkopts = {linkopts},
)
"""

def _link_options(runtime, cublas):
    runtime_folder, runtime_name = runtime.rsplit("/", 1)
    cublas_folder, cublas_name = cublas.rsplit("/", 1)
    return [
        "-L" + runtime_folder,
        "-l:" + runtime_name,
        "-L" + cublas_folder,
        "-l:" + cublas_name,
        # At run time it is looked for here, then where the Toolkit installs.
        "-Wl,-rpath," + cublas_folder,
        "-Wl,-rpath,/usr/local/cuda/lib64",
        "-ldl",
        "-lpthread",
        "-lrt",
    ]

def _cuda_configure_impl(repository_ctx):
    script = repository_ctx.path(Label("//third_party/cuda:find_toolkit.sh"))
    toolkit = repository_ctx.execute([script]).stdout.strip()
    nvcc = ""
    has_cudnn = False
    linkopts = []
    if toolkit:
        home, runtime, cublas, cudnn = toolkit.split("|")
        nvcc = home + "/bin/nvcc"
        has_cudnn = bool(cudnn)
        linkopts = _link_options(runtime, cublas)
        repository_ctx.symlink(home + "/include", "include")
        repository_ctx.symlink(nvcc, "nvcc")
    repository_ctx.file("BUILD", _BUILD.format(linkopts = repr(linkopts)))
    repository_ctx.file("cuda.bzl", "\n".join([
        "HAS_CUDA = %s" % bool(nvcc),
        # The tags of targets that only a machine with a Toolkit can build.
        "CUDA_TAGS = %s" % ([] if nvcc else ["manual"]),
        "HAS_CUDNN = %s" % has_cudnn,
        "NVCC = %s" % repr(nvcc),
        "",
    ]))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["WEIR_CUDA_TOOLKIT"],
)
