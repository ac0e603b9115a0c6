#!/usr/bin/env bash
# Runs a Python test in the runfiles, with Debian's Python and this build's
# programs.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$PWD/tests/support
export WEIR_BIN_DIR=${WEIR_BIN_DIR:-$PWD}
unset TF_CONFIG WEIR_CLUSTER WEIR_TASK_TYPE WEIR_TASK_INDEX
exec /usr/bin/python3 "$@"
