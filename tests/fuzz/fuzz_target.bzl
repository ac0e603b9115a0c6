"""One fuzzer: a program with libFuzzer's main, for clang alone."""

def fuzz_target(name, deps):
    """The fuzzer of NAME.cc, which `./weir fuzz NAME` builds and runs.

    Args:
      name: the target's name, and its file's without ".cc". It ends in _fuzz.
      deps: what the fuzzer uses.
    """
    native.cc_binary(
        name = name,
        testonly = True,
        srcs = [name + ".cc"],
        linkopts = ["-fsanitize=fuzzer"],
        # gcc has no libFuzzer, so no wildcard may name these targets.
        tags = ["manual"],
        deps = deps,
    )
