"""The command `weir`, as pip installs it: run, config, checkpoint, ..."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Becomes the launcher of the wheel; does not return.

    What looks for Weir's programs finds the wheel's, unless WEIR_BIN_DIR says
    otherwise.
    """
    bin_dir = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bin")
    launcher = os.path.join(bin_dir, "deploy", "cli", "weir_cli")
    if not os.path.exists(launcher):
        sys.exit(
            f"weir: there is no {launcher}: this package is not from a wheel; "
            "in Weir's source the command is ./weir"
        )
    os.environ.setdefault("WEIR_BIN_DIR", bin_dir)
    os.execv(launcher, ["weir", *sys.argv[1:]])
