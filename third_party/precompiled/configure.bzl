"""Bazel's own detection of the C++ toolchain, and precompiled headers.

Most of the time of compiling a small source goes into reading system headers and,
with clang, instantiating their templates. precompile.sh does it once for the config
of .bazelrc that WEIR_PRECOMPILED names, or for gcc where none is named. The options
in .bazelrc tell the compiler which file to read: clang O0.pch or O1.pch, gcc what
lies beside O0.h, O1.h or O2.h.

The files lie in extra_tools/, which Bazel makes an input of every source: when the
headers or the options change, everything is compiled again. tools/bazel puts the
times of some system headers into WEIR_SYSTEM_HEADERS before each command; another
value writes this repository anew. Where that misses a change, clang says that a
header was modified, gcc does not, and `bazel sync --configure` helps.
"""

load("@bazel_tools//tools/cpp:cc_configure.bzl", "cc_autoconf_impl")

def _precompiled_configure_impl(repository_ctx):
    script = repository_ctx.path(Label("//third_party/precompiled:precompile.sh"))

    # What the script reads is named here, so that a change of it is noticed.
    repository_ctx.path(Label("//third_party/precompiled:headers.txt"))
    repository_ctx.path(Label("//:.bazelrc"))
    cc_autoconf_impl(repository_ctx)
    environ = repository_ctx.os.environ
    out = repository_ctx.path("extra_tools")
    repository_ctx.execute(["mkdir", "-p", out])
    result = repository_ctx.execute([
        script,
        environ.get("CC", "gcc"),
        environ.get("WEIR_PRECOMPILED", ""),
        out,
    ])
    if result.return_code != 0:
        fail("the headers of third_party/precompiled/headers.txt cannot be " +
             "precompiled. Their packages come with ./weir setup, and those of " +
             "GoogleTest and clang with ./weir setup --test. The compiler said:\n" +
             result.stderr)

precompiled_configure = repository_rule(
    implementation = _precompiled_configure_impl,
    configure = True,
    environ = [
        "CC",
        "WEIR_PRECOMPILED",
        "WEIR_SYSTEM_HEADERS",
    ],
)
