#!/bin/sh
# Weir measures no coverage through Bazel; the target only has to exist.
exit 1
