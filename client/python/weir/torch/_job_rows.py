"""The rows that a model asks for and their gradients, until a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from weir import _client
from weir.errors import InvalidArgument
from weir.tables import Table
from weir.torch._local_rows import LocalRows


class HasTable(Protocol):
    """A module whose rows are on the servers."""

    table: Table
    lr: float


@dataclasses.dataclass
class Asked:
    """Rows that a forward wants. The last one is zeros, for padding."""

    given: torch.Tensor
    places: torch.Tensor  # in `rows`, of given's shape
    ids: np.ndarray  # uint64, each once
    rows: np.ndarray  # [ids + 1, dim]
    train: bool = False

    @property
    def out(self) -> np.ndarray:
        return self.rows[:-1]


def _tables_of(modules: Sequence[HasTable]) -> list[Table]:
    """Each name once. Raises: `weir.InvalidArgument` if two differ."""
    tables: dict[str, Table] = {}
    for module in modules:
        first = tables.setdefault(module.table.name, module.table)
        if first != module.table:
            raise InvalidArgument(
                f"two modules share table '{first.name}' and declare "
                f"different ones: {first} and {module.table}"
            )
    return list(tables.values())


class JobRows:
    """Tables of a model: rows, and their gradients until a step pushes them.

    Args:
      modules: that have tables.
      local: a script without servers: rows are here.
    """

    def __init__(self, modules: Sequence[HasTable], local: bool, seed: int = 0):
        self._modules = modules
        self._declared = {t.name: t for t in _tables_of(modules)}
        self._gradients: list[tuple[str, np.ndarray, torch.Tensor]] = []
        self._local: dict[str, LocalRows] | None = None
        if local:
            self._local = {
                name: LocalRows(table, seed)
                for name, table in self._declared.items()
            }
        self.client: _client.Client | None = None
        self._ahead: dict[HasTable, Asked] = {}
        self._under_way = False  # what is ahead

    @property
    def tables(self) -> list[Table]:
        return list(self._declared.values())

    def __bool__(self) -> bool:
        """Whether a gradient waits."""
        return bool(self._gradients)

    def lookup(
        self, table: str, ids: np.ndarray, out: np.ndarray, train: bool
    ) -> None:
        """Rows of `ids`, uint64 and each once, into `out` [ids, dim]."""
        if self._local is not None:
            self._local[table].lookup(ids, out, train)
        else:
            self._wait()
            self.client._declared().lookup([(table, ids, out)], train)

    def prefetch(self, asked: dict[HasTable, Asked], train: bool) -> None:
        """Fetches the rows of all modules in one lookup."""
        self._wait()
        lists = [(m.table.name, a.ids, a.out) for m, a in asked.items()]
        if self._local is None:
            self.client._declared().start_lookup(lists, train)
            self._under_way = True
        else:
            for table, ids, out in lists:
                self._local[table].lookup(ids, out, train)
        for one in asked.values():
            one.train = train
        self._ahead = asked

    def take(
        self, module: HasTable, ids: torch.Tensor, train: bool
    ) -> Asked | None:
        """The rows that `prefetch` has fetched for it."""
        self._wait()
        asked = self._ahead.pop(module, None)
        if (
            asked is None
            or asked.train != train
            or asked.given.device != ids.device
            or not torch.equal(asked.given, ids)
        ):
            return None
        return asked

    def _wait(self) -> None:
        if self._under_way:
            self.client._declared().wait_lookup()
            self._under_way = False

    def add(self, table: str, ids: np.ndarray, gradient: torch.Tensor) -> None:
        """`gradient` has one row more than `ids`: that of padding."""
        # A copy: autograd adds what a second backward brings to `gradient`.
        kept = gradient.detach()[: len(ids)].clone()
        self._gradients.append((table, ids, kept))

    def clear(self) -> None:
        self._gradients.clear()

    def is_finite(self) -> bool:
        return all(bool(g.isfinite().all()) for _, _, g in self._gradients)

    def lists(self, factor: float) -> list[tuple[str, np.ndarray, np.ndarray]]:
        """As the core takes them; the SDK sums what an id has several of."""
        result = []
        for table, ids, gradient in self._gradients:
            if factor != 1.0:
                gradient = gradient * factor
            gradient = gradient.to("cpu", torch.float32).contiguous()
            result.append((table, ids, gradient.numpy()))
        return result

    def rates(self) -> list[tuple[str, float]]:
        """Learning rates that modules were given since their declaration."""
        changed = {
            module.table.name: float(module.lr)
            for module in self._modules
            if module.lr != self._declared[module.table.name].optimizer.lr
        }
        return list(changed.items())

    def step_here(self, factor: float) -> None:
        """What the servers do with a push, for tables in this process."""
        rates = dict(self.rates())
        lists = self.lists(factor)
        for name, rows in (self._local or {}).items():
            mine = [(i, g) for table, i, g in lists if table == name]
            dim = self._declared[name].dim
            ids, places = np.unique(
                np.concatenate([i for i, _ in mine] or [[]]).astype(np.uint64),
                return_inverse=True,
            )
            sums = np.zeros((len(ids), dim))
            if mine:
                np.add.at(sums, places, np.concatenate([g for _, g in mine]))
            lr = rates.get(name, self._declared[name].optimizer.lr)
            rows.update(ids, sums.astype(np.float32), lr)
        self.clear()
