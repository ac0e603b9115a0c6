"""What `init` has found out about this process's place in the job."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import torch

from weir import _environment
from weir.errors import Closed

if TYPE_CHECKING:
    from weir.torch._embedding import JobRows
    from weir.torch._optimizer import DistributedOptimizer
    from weir.torch._sampler import DistributedSampler


@dataclasses.dataclass
class Context:
    """There is one in each process."""

    # What weir.connect takes; None: no cluster, the script runs alone.
    connection: dict[str, Any] | None
    rank: int
    size: int
    device: torch.device
    optimizer: DistributedOptimizer | None = None
    rows: JobRows | None = None  # of the optimizer's model
    seed: int = 0  # of rows
    sampler: DistributedSampler | None = None

    @property
    def first_push(self) -> int:
        """Pushes of this rank before this process; known once it declared."""
        return 0 if self.optimizer is None else self.optimizer.first_push


_context: Context | None = None


def init(**connection: Any) -> None:
    """Finds this process's place in its cluster; call it first.

    The environment is that of `weir.connect`: TF_CONFIG, WEIR_* or torchrun's.
    Without one the script runs alone, in this process, with its own optimizer.
    In a cluster, "cuda" is `device()` from here on.

    Args: those of `weir.connect`; they win over the environment.
    """
    global _context
    found: dict[str, Any] | None = None
    if connection.get("ps") is not None:
        found = dict(rank=0, worker_count=1)
    else:
        found = _environment.read()
    if found is not None:
        found.update({k: v for k, v in connection.items() if v is not None})
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
