"""One test of Weir: a .cc file of its own name, with GoogleTest's main."""

def weir_test(name, deps = [], size = "small", **kwargs):
    """The cc_test of NAME.cc.

    Args:
      name: the test's name, and its file's without ".cc".
      deps: what the test uses; GoogleTest and its main come by themselves.
      size: of Bazel: "small" ends within a minute.
      **kwargs: further attributes of cc_test.
    """
    native.cc_test(
        name = name,
        size = size,
        srcs = [name + ".cc"],
        deps = deps + ["//third_party:gtest_main"],
        **kwargs
    )
