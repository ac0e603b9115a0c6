#!/bin/sh
# Runs the test of alerts and dashboard on the tree that this build was made
# from.
set -eu
root=$(dirname "$(readlink -f "$TEST_SRCDIR/$TEST_WORKSPACE/WORKSPACE")")
exec /usr/bin/python3 -B "$root/tests/deploy/monitoring/monitoring_test.py"
