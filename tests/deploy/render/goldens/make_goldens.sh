#!/usr/bin/env bash
# Writes the golden files of target_test.cc anew. Look at what `git diff` shows
# before you commit it.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../../../.."
bazel build //tests/deploy/render:target_test
WEIR_WRITE_GOLDENS="$PWD/tests/deploy/render/goldens" \
  bazel-bin/tests/deploy/render/target_test --gtest_filter='*.Renders*'
