"""Embedding tables: rows of floats by 64-bit id, which only servers hold.

The equations of their optimizers are in docs/optimizers.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from weir.errors import InvalidArgument
from weir.optimizers import SGD, Adagrad, Optimizer


@dataclasses.dataclass(frozen=True)
class RowwiseAdagrad(Optimizer):
    """Adagrad with one accumulator a row: the mean of its squared gradients."""

    lr: float = 1e-2
    initial_accumulator: float = 0.0
    eps: float = 1e-10


@dataclasses.dataclass(frozen=True)
class SparseAdam(Optimizer):
    """Adam that moves only rows with a gradient (torch.optim.SparseAdam).

    per_row_step: the bias correction counts a row's own updates, not the
    table's.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    per_row_step: bool = False


@dataclasses.dataclass(frozen=True)
class FTRL(Optimizer):
    """McMahan et al. 2013; l21 > 0 sets whole rows to zero (group lasso)."""

    lr: float = 1e-2
    learning_rate_power: float = -0.5
    initial_accumulator: float = 0.1
    l1: float = 0.0
    l2: float = 0.0
    l2_shrinkage: float = 0.0
    beta: float = 0.0
    l21: float = 0.0


RowOptimizer = SGD | Adagrad | RowwiseAdagrad | SparseAdam | FTRL

# The members of SGD and Adagrad that tables have; the others must keep their
# defaults.
_USED = {
    SGD: {"lr"},
    Adagrad: {"lr", "initial_accumulator", "eps"},
    RowwiseAdagrad: None,
    SparseAdam: None,
    FTRL: None,
}
_INITS = ("uniform", "normal", "constant")


@dataclasses.dataclass(frozen=True)
class Table:
    """A table; the same on every worker.

    Args:
      name: of a-z, 0-9 and _; at most 64.
      dim: floats of a row.
      optimizer: SGD, Adagrad, RowwiseAdagrad, SparseAdam or FTRL. Rows without
        a gradient stay.
      init, init_scale: of new rows: "uniform" in [-init_scale, init_scale),
        "normal" with that standard deviation, or "constant".
      admission_count, admission_probability: an id gets a row at its so
        many-th touch, or at each touch with that probability; one of them.
        Until then it reads its initial value, and its gradients are dropped.
      admission_filter_bytes: to count ids without a row; 0: 16 MiB a server.
      expiry_steps, expiry_seconds: rows go that were not touched for so many
        pushes (sync: steps) or seconds; one of them.
      memory_bytes: of the table on one server; 0: no bound. Rows go when it is
        used up: those least recently touched, or with `least_frequent` those
        least often.
      lookup_encoding, update_encoding: what travels in place of float32:
        "f32", "bf16", "f16", "int8".
    """

    name: str
    dim: int
    optimizer: RowOptimizer = SGD(lr=0.01)
    init: str = "uniform"
    init_scale: float = 0.05
    admission_count: int = 0
    admission_probability: float = 0.0
    admission_filter_bytes: int = 0
    expiry_steps: int = 0
    expiry_seconds: int = 0
    memory_bytes: int = 0
    least_frequent: bool = False
    lookup_encoding: str = "f32"
    update_encoding: str = "f32"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidArgument(f"a table is named {self.name!r}")
        if isinstance(self.dim, bool) or not isinstance(self.dim, int):
            raise InvalidArgument(
                f"table '{self.name}': dim {self.dim!r} is not a number"
            )
        if self.init not in _INITS:
            raise InvalidArgument(
                f"table '{self.name}': no rows begin as {self.init!r}; choose "
                + ", ".join(_INITS)
            )
        kind = type(self.optimizer)
        if kind not in _USED:
            known = ", ".join(k.__name__ for k in _USED)
            raise InvalidArgument(
                f"table '{self.name}': rows have no optimizer "
                f"{self.optimizer!r}; give a weir." + known
            )
        used = _USED[kind]
        for field in dataclasses.fields(kind):
            if (
                used is not None
                and field.name not in used
                and getattr(self.optimizer, field.name) != field.default
            ):
                raise InvalidArgument(
                    f"table '{self.name}': {kind.__name__} of rows has no "
                    f"{field.name}"
                )

    def _as_options(self) -> dict[str, Any]:
        return dict(vars(self), optimizer=self.optimizer._as_options())


def check_ids(table: str, ids: np.ndarray) -> np.ndarray:
    """As uint64, contiguous, of the same shape.

    Raises: `weir.InvalidArgument` names the id or the dtype that is wrong.
    """
    if ids.size > 0:
        if ids.dtype.kind not in "ui":
            raise InvalidArgument(
                f"table '{table}': ids are {ids.dtype}; give integers"
            )
        if ids.dtype.kind == "i" and ids.min() < 0:
            raise InvalidArgument(
                f"table '{table}': id {ids.min()} is negative; ids are 0 to "
                "2^64 - 1"
            )
    return np.asarray(ids, np.uint64, order="C")
