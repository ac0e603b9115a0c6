"""Optimizers that run on the servers, with PyTorch's arithmetic.

The equations are in docs/optimizers.md. Every value may be replaced for one
push by `Client.push(..., settings=...)` where that function says so.
"""

from __future__ import annotations

import dataclasses
from typing import Any

# What the SDK calls members for which PyTorch has short names.
_SDK_NAMES = {"lr": "learning_rate", "eps": "epsilon"}


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """What a server does with a gradient. Use one of the subclasses."""

    lr: float

    def _as_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"optimizer": type(self).__name__.lower()}
        for name, value in vars(self).items():
            if name == "betas":
                options["beta1"], options["beta2"] = (float(b) for b in value)
            elif isinstance(value, bool):
                options[name] = value
            else:
                options[_SDK_NAMES.get(name, name)] = float(value)
        return options


@dataclasses.dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent with momentum (torch.optim.SGD)."""

    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False


@dataclasses.dataclass(frozen=True)
class Adagrad(Optimizer):
    """Duchi, Hazan and Singer 2011 (torch.optim.Adagrad)."""

    lr: float = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator: float = 0.0
    eps: float = 1e-10


@dataclasses.dataclass(frozen=True)
class RMSprop(Optimizer):
    """Hinton 2012, lecture 6e (torch.optim.RMSprop)."""

    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False


@dataclasses.dataclass(frozen=True)
class Adadelta(Optimizer):
    """Zeiler 2012 (torch.optim.Adadelta)."""

    lr: float = 1.0
    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0


@dataclasses.dataclass(frozen=True)
class Adam(Optimizer):
    """Kingma and Ba 2015 (torch.optim.Adam)."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False


@dataclasses.dataclass(frozen=True)
class AdamW(Optimizer):
    """Loshchilov and Hutter 2019, decoupled decay (torch.optim.AdamW)."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-2
    amsgrad: bool = False


@dataclasses.dataclass(frozen=True)
class Settings:
    """Replaces what a group's optimizer says, for one push. None: as declared.

    momentum is that of SGD and RMSprop, and betas[0] of Adam and AdamW.
    """

    lr: float | None = None
    weight_decay: float | None = None
    momentum: float | None = None

    def _as_options(self, group: int) -> dict[str, Any]:
        given = {k: v for k, v in vars(self).items() if v is not None}
        return {"group": group} | {
            _SDK_NAMES.get(name, name): float(value)
            for name, value in given.items()
        }
