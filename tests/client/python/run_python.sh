#!/usr/bin/env bash
# Runs a Python test in the runfiles, with Debian's Python.
set -euo pipefail
export PYTHONPATH=$PWD/client/python:$PWD/tests/client/python:$PWD/tests/support
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
unset TF_CONFIG WEIR_PS WEIR_CLUSTER
exec /usr/bin/python3 "$@"
