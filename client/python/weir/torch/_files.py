"""A model on disk, by one worker for all."""

from __future__ import annotations

import os
import pickle
import tempfile
import zipfile
from typing import Any

import torch

from weir.errors import InvalidArgument
from weir.torch import _context, _loading, _unpickler
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
    # A new file of mode 0600: nobody else reads the weights, and a link of that
    # name is not followed.
    descriptor, temporary = tempfile.mkstemp(
        prefix=f"{os.path.basename(path)}.",
        suffix=".tmp",
        dir=os.path.dirname(path) or ".",
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            torch.save(content, file)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def load(path: str, model: torch.nn.Module) -> dict[str, Any]:
    """Reads what `save` wrote into `model`; returns all of it.

    Call it before `DistributedOptimizer`: the servers start from rank 0's
    model, and what they hold already wins. Nothing in the file is run: with
    anything but tensors, numbers, text, and lists and dicts of them it is
    refused.

    Raises:
      InvalidArgument: the file holds something else, or no such data.
    """
    _loading.refuse()
    content = _read(path)
    model.load_state_dict(content["model"])
    return content


def _read(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        # Other formats of torch.load have ways of their own to bring code.
        if not zipfile.is_zipfile(file) or _is_script(file):
            raise InvalidArgument(f"{path}: weir.torch.save did not write it")
        file.seek(0)
        try:
            if torch.__version__ >= (2, 6):
                content = torch.load(
                    file, map_location="cpu", weights_only=True
                )
            else:
                content = _unpickler.load(file)
        except pickle.UnpicklingError as error:
            raise InvalidArgument(
                f"{path}: it holds more than tensors, numbers, text, and lists "
                f"and dicts of them ({error}); such a file can run code. If "
                "you trust it, read it with torch.load and call "
                "model.load_state_dict"
            ) from error
    if not isinstance(content, dict) or "model" not in content:
        raise InvalidArgument(f"{path}: weir.torch.save did not write it")
    return content


def _is_script(file: Any) -> bool:
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    return any(name.endswith("/constants.pkl") for name in names)
