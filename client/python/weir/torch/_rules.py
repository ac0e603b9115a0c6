"""Which of PyTorch's optimizers the servers run, and with what."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from weir import optimizers
from weir.errors import InvalidArgument

# By PyTorch's class; the members are the keys of a parameter group.
_RULES: dict[type, type[optimizers.Optimizer]] = {
    torch.optim.SGD: optimizers.SGD,
    torch.optim.Adagrad: optimizers.Adagrad,
    torch.optim.RMSprop: optimizers.RMSprop,
    torch.optim.Adadelta: optimizers.Adadelta,
    torch.optim.Adam: optimizers.Adam,
    torch.optim.AdamW: optimizers.AdamW,
}


def _rule(
    kind: type[optimizers.Optimizer], group: dict[str, Any]
) -> optimizers.Optimizer:
    # PyTorch 2.7 and newer: Adam that decays as AdamW does.
    if kind is optimizers.Adam and group.get("decoupled_weight_decay", False):
        kind = optimizers.AdamW
    members = {}
    for field in dataclasses.fields(kind):
        key = field.name
        if key == "initial_accumulator":
            key = "initial_accumulator_value"
        members[field.name] = group[key]
    # Both may be tensors.
    members["lr"] = float(members["lr"])
    if "betas" in members:
        members["betas"] = tuple(float(beta) for beta in members["betas"])
    return kind(**members)


def rules(optimizer: torch.optim.Optimizer) -> list[optimizers.Optimizer]:
    """By parameter group. Raises: `weir.InvalidArgument` names the class."""
    kind = _RULES.get(type(optimizer))
    if kind is None:
        known = ", ".join(sorted(known.__name__ for known in _RULES))
        raise InvalidArgument(
            f"the servers have no {type(optimizer).__name__}; they run {known} "
            "of torch.optim. Pass local=True to run it in the worker and push "
            "what it changes"
        )
    return [_rule(kind, group) for group in optimizer.param_groups]


def settings(
    now: optimizers.Optimizer, declared: optimizers.Optimizer
) -> optimizers.Settings:
    """What a group says now, for one push.

    Raises: `weir.InvalidArgument` names what changed and may not.
    """
    for field in dataclasses.fields(declared):
        new, old = getattr(now, field.name), getattr(declared, field.name)
        if field.name == "betas":
            new, old = new[1], old[1]
        elif field.name in ("lr", "weight_decay", "momentum"):
            continue
        if new != old:
            raise InvalidArgument(
                f"{field.name} changed from {old} to {new}; once the servers "
                "have it, only lr, weight_decay, momentum and betas[0] may"
            )
    momentum = getattr(now, "momentum", None)
    if hasattr(now, "betas"):
        momentum = now.betas[0]
    elif not momentum and not getattr(declared, "momentum", 0.0):
        momentum = None  # servers keep no room for one
    return optimizers.Settings(now.lr, now.weight_decay, momentum)
