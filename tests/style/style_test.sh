#!/bin/sh
# Runs the style checks over the source tree that this build was made from.
set -eu
root=$(dirname "$(readlink -f "$TEST_SRCDIR/$TEST_WORKSPACE/WORKSPACE")")
exec python3 -B "$root/tests/style/style_check.py" "$root"
