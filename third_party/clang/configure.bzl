"""Bazel's own detection of the C++ toolchain, and precompiled headers for clang.

Most of the time of compiling a small source with clang goes into reading system
headers and instantiating their templates. precompile.sh does both once for the
config of .bazelrc that WEIR_PRECOMPILED names. The config tells clang which file
to read, O0.pch or O1.pch.

The files lie in extra_tools/, which Bazel makes an input of every source: when the
headers or the options change, everything is compiled again. tools/bazel puts the
times of some system headers into WEIR_SYSTEM_HEADERS before each command; another
value writes this repository anew. Where that misses a change, clang says that a
header was modified, and `bazel sync --configure` helps.
"""

load("@bazel_tools//tools/cpp:cc_configure.bzl", "cc_autoconf_impl")

def _clang_configure_impl(repository_ctx):
    script = repository_ctx.path(Label("//third_party/clang:precompile.sh"))

    # What the script reads is named here, so that a change of it is noticed.
    repository_ctx.path(Label("//third_party/clang:headers.txt"))
    repository_ctx.path(Label("//:.bazelrc"))
    cc_autoconf_impl(repository_ctx)
    environ = repository_ctx.os.environ
    config = environ.get("WEIR_PRECOMPILED", "")
    if not config:
        return
    out = repository_ctx.path("extra_tools")
    repository_ctx.execute(["mkdir", "-p", out])
    result = repository_ctx.execute([script, environ["CC"], config, out])
    if result.return_code != 0:
        fail("clang cannot precompile the headers of third_party/clang/" +
             "headers.txt. Their packages come with ./weir setup --test. It said:\n" +
             result.stderr)

clang_configure = repository_rule(
    implementation = _clang_configure_impl,
    configure = True,
    environ = [
        "CC",
        "WEIR_PRECOMPILED",
        "WEIR_SYSTEM_HEADERS",
    ],
)
