"""What `init` has found out about this process's place in the job."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import torch

from weir import _environment
from weir.errors import Closed
from weir.torch._job_rows import JobRows


@dataclasses.dataclass
class Context:
    """There is one in each process."""

    # What weir.connect takes; None: no cluster, the script runs alone.
    connection: dict[str, Any] | None
    rank: int
    size: int
    device: torch.device
    seed: int = 0  # of rows
    # What DistributedOptimizer sets: itself, the rows of its model, and the
    # pushes of this rank before this process.
    optimizer: torch.optim.Optimizer | None = None
    rows: JobRows | None = None
    first_push: int = 0
    # What DistributedSampler sets: goes on with the epoch of the next batch,
    # and returns it.
    resume: Callable[[], int] | None = None


_context: Context | None = None


def init(**connection: Any) -> None:
    """Finds this process's place in its cluster; call it first.

    The environment is that of `weir.connect`: TF_CONFIG, WEIR_* or torchrun's.
    Without one the script runs alone, in this process, with its own optimizer.
    In a cluster, "cuda" is `device()` from here on.

    Args: those of `weir.connect`; they win over the environment.
    """
    global _context
    found = _environment.cluster(**connection)
    rank = 0 if found is None else int(found["rank"])
    size = 1 if found is None else int(found["worker_count"])
    device_here = _choose_device(rank)
    if found is not None and device_here.type == "cuda":
        torch.cuda.set_device(device_here)
    seed = int(connection.get("seed") or 0)
    _context = Context(found, rank, size, device_here, seed=seed)


def _choose_device(rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    local = os.environ.get("LOCAL_RANK", "")
    index = int(local) if local.isdigit() else rank
    return torch.device("cuda", index % torch.cuda.device_count())


def context() -> Context:
    """Raises: `weir.Closed` before `init`."""
    if _context is None:
        raise Closed("call weir.torch.init() first")
    return _context


def rank() -> int:
    """This worker among all, from 0."""
    return context().rank


def size() -> int:
    """Workers of the job."""
    return context().size


def device() -> torch.device:
    """Where this worker computes: "cuda:N" if it has a GPU, else "cpu".

    N is LOCAL_RANK, else the rank, modulo the host's GPUs.
    """
    return context().device
