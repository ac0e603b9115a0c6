"""The commands that pip installs: weir, weir_ps and weir_chief."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Becomes the launcher of the wheel: run, config, checkpoint, ..."""
    _become("deploy/cli/weir_cli", "weir")


def ps() -> None:
    """Becomes a parameter server."""
    _become("server/ps/weir_ps", "weir_ps")


def chief() -> None:
    """Becomes a chief."""
    _become("server/chief/weir_chief", "weir_chief")


def _become(path: str, name: str) -> None:
    """Becomes this program of the wheel; does not return.

    What looks for Weir's programs finds the wheel's, unless WEIR_BIN_DIR says
    otherwise.
    """
    bin_dir = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bin")
    program = os.path.join(bin_dir, path)
    if not os.path.exists(program):
        sys.exit(
            f"weir: there is no {program}: this package is not from a wheel; "
            "in Weir's source the command is ./weir"
        )
    os.environ.setdefault("WEIR_BIN_DIR", bin_dir)
    os.execv(program, [name, *sys.argv[1:]])
