"""Refuses values that the servers' would replace at the next step."""

from __future__ import annotations

from typing import Any

import torch

from weir.errors import InvalidArgument
from weir.torch import _context


def refuse() -> None:
    """Raises: `weir.InvalidArgument` once the servers know the model."""
    if _context.context().optimizer is not None:
        raise InvalidArgument(
            "the servers have the model's parameters already: load before "
            "DistributedOptimizer"
        )


class Guard:
    """From its construction to `end`, load_state_dict of `model` raises."""

    def __init__(self, model: torch.nn.Module):
        self.modules = {
            module: module.register_load_state_dict_post_hook(_on_load)
            for module in model.modules()
            # These have no hooks.
            if not isinstance(module, torch.jit.ScriptModule)
        }

    def end(self) -> None:
        for hook in self.modules.values():
            hook.remove()
        self.modules.clear()


# A function of this module, so that models can still be pickled. Copies of a
# model have it, too, and may load what they want.
def _on_load(module: torch.nn.Module, _: Any) -> None:
    found = _context._context
    optimizer = None if found is None else found.optimizer
    if optimizer is not None and module in optimizer._guard.modules:
        refuse()
