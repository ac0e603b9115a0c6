"""Which cluster this process belongs to, from its environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from weir import _core
from weir.errors import InvalidArgument


def _index(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise InvalidArgument(f"{name} is {text!r}, not a number") from None


def has_tf_config() -> bool:
    """Whether TF_CONFIG or WEIR_CLUSTER describes a cluster."""
    return os.environ.get("TF_CONFIG", "").strip() not in (
        "",
        "{}",
    ) or bool(os.environ.get("WEIR_CLUSTER", "").strip())


def read() -> dict[str, Any] | None:
    """`ps`, `chief`, `rank`, `worker_count`, `transport`, or None.

    TF_CONFIG, or WEIR_CLUSTER, WEIR_TASK_TYPE and WEIR_TASK_INDEX; else WEIR_PS
    ("host:port,host:port") and WEIR_CHIEF with torchrun's RANK and WORLD_SIZE.

    Raises: `weir.InvalidArgument` where this task is not a worker.
    """
    if has_tf_config():
        return _core.options_from_env()
    addresses = [a.strip() for a in os.environ.get("WEIR_PS", "").split(",")]
    return _beside(addresses) if any(addresses) else None


def _beside(addresses: list[str]) -> dict[str, Any]:
    """What the environment says beside the servers of WEIR_PS."""
    return {
        "ps": addresses,
        "chief": os.environ.get("WEIR_CHIEF", "").strip(),
        "rank": _index("RANK", 0),
        "worker_count": _index("WORLD_SIZE", 1),
        "transport": os.environ.get("WEIR_TRANSPORT", "auto"),
    }


def cluster(
    ps: Sequence[str] | None = None, **given: Any
) -> dict[str, Any] | None:
    """Where the servers are and who this is, or None without a cluster.

    What is given, and not None, goes before what the environment says. `ps`
    takes the place of WEIR_PS, and of TF_CONFIG.
    """
    found = read() if ps is None else _beside(list(ps))
    if found is not None:
        found.update((k, v) for k, v in given.items() if v is not None)
    return found
