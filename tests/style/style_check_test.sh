#!/bin/sh
# Runs the test of the style checks.
exec python3 -B "$TEST_SRCDIR/$TEST_WORKSPACE/tests/style/style_check_test.py"
