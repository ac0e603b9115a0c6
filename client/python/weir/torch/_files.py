"""A model on disk, by one worker for all."""

from __future__ import annotations

import os
from typing import Any

import torch

from weir.errors import InvalidArgument
from weir.torch import _context
from weir.torch._optimizer import DistributedOptimizer


def save(
    path: str,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    **more: Any,
) -> None:
    """Writes {"model", "optimizer", ...} with torch.save; rank 0 alone.

    The model gets the newest parameters first. A file of that name is replaced
    as a whole, or stays.

    Args:
      more: further entries: tensors, numbers, text, lists and dicts of them.
    """
    if _context.rank() != 0:
        return
    if isinstance(optimizer, DistributedOptimizer):
        optimizer.pull()
    content = dict(more, model=model.state_dict())
    if optimizer is not None:
        content["optimizer"] = optimizer.state_dict()
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        torch.save(content, temporary)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def load(path: str, model: torch.nn.Module) -> dict[str, Any]:
    """Reads what `save` wrote into `model`; returns all of it.

    Call it before `DistributedOptimizer`: the servers start from rank 0's
    model, and what they hold already wins. Before PyTorch 2.6 a file may bring
    code that is run: load only what you trust.
    """
    if _context.context().optimizer is not None:
        raise InvalidArgument(
            "the servers have the model's parameters already: load before "
            "DistributedOptimizer"
        )
    content = torch.load(path, map_location="cpu")
    model.load_state_dict(content["model"])
    return content
