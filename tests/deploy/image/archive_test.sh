#!/usr/bin/env bash
# Runs archive_test.py.
set -euo pipefail
exec /usr/bin/python3 -B tests/deploy/image/archive_test.py
