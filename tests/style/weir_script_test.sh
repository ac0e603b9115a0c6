#!/bin/sh
# Runs the test of the `weir` script on copies of the tree that this build was
# made from.
set -eu
root=$(dirname "$(readlink -f "$TEST_SRCDIR/$TEST_WORKSPACE/WORKSPACE")")
exec python3 -B "$root/tests/style/weir_script_test.py"
