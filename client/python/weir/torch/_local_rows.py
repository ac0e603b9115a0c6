"""A table in this process, for a script that runs without a cluster.

The equations are those of the servers (docs/optimizers.md). Initial rows come
from another generator, every id gets a row at once, and none goes: admission,
expiry and encodings are the servers'.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from weir import optimizers, tables

Arrays = dict[str, np.ndarray]


class LocalRows:
    """Rows by id; one thread."""

    def __init__(self, table: tables.Table, seed: int):
        self._table = table
        self._rule = table.optimizer
        self._seed = (seed << 32) + zlib.crc32(table.name.encode())
        self._places: dict[int, int] = {}
        self._updates = 0
        dim = table.dim
        self._rows: Arrays = {
            "values": np.empty((0, dim), np.float32),
            "updates": np.empty((0, 1), np.int64),
        }
        for name, (width, _) in _slots(self._rule, dim).items():
            self._rows[name] = np.empty((0, width), np.float32)

    def lookup(self, ids: np.ndarray, out: np.ndarray, train: bool) -> None:
        """Rows of `ids`, each once, into `out` [ids, dim]."""
        if train:
            places = self._place(ids)  # may move the rows
            out[:] = self._rows["values"][places]
            return
        for row, one in zip(out, ids.tolist()):
            place = self._places.get(one)
            row[:] = (
                self._initial(one)
                if place is None
                else self._rows["values"][place]
            )

    def update(self, ids: np.ndarray, gradients: np.ndarray, lr: float) -> None:
        """Moves the rows of `ids`, each once; counts with none, too."""
        self._updates += 1
        if len(ids) == 0:
            return
        places = self._place(ids)
        self._rows["updates"][places] += 1
        rows = {name: of_all[places] for name, of_all in self._rows.items()}
        per_row = getattr(self._rule, "per_row_step", False)
        t = rows["updates"] if per_row else self._updates
        _MOVES[type(self._rule)](self._rule, rows, gradients, np.float32(lr), t)
        for name, of_ids in rows.items():
            self._rows[name][places] = of_ids

    def _place(self, ids: np.ndarray) -> np.ndarray:
        new = [one for one in ids.tolist() if one not in self._places]
        if new:
            begin = len(self._places)
            for one in new:
                self._places[one] = len(self._places)
            if len(self._places) > len(self._rows["values"]):
                room = max(2 * len(self._places), 1024)
                for name, array in self._rows.items():
                    grown = np.zeros((room, array.shape[1]), array.dtype)
                    grown[: len(array)] = array
                    self._rows[name] = grown
            end = len(self._places)
            self._rows["values"][begin:end] = [self._initial(i) for i in new]
            for name, (_, initial) in _slots(
                self._rule, self._table.dim
            ).items():
                self._rows[name][begin:end] = initial
        return np.array([self._places[one] for one in ids.tolist()], np.int64)

    def _initial(self, one: int) -> np.ndarray:
        """A pure function of seed, table and id."""
        table = self._table
        if table.init == "constant":
            return np.full(table.dim, table.init_scale, np.float32)
        random = np.random.Generator(np.random.Philox(key=[self._seed, one]))
        if table.init == "normal":
            row = table.init_scale * random.standard_normal(table.dim)
        else:
            row = random.uniform(-table.init_scale, table.init_scale, table.dim)
        return row.astype(np.float32)


def _slots(rule: Any, dim: int) -> dict[str, tuple[int, float]]:
    """Floats of a row's slots, and what they begin with."""
    if isinstance(rule, optimizers.Adagrad):
        return {"sum": (dim, rule.initial_accumulator)}
    if isinstance(rule, tables.RowwiseAdagrad):
        return {"sum": (1, rule.initial_accumulator)}
    if isinstance(rule, tables.SparseAdam):
        return {"m": (dim, 0.0), "v": (dim, 0.0)}
    if isinstance(rule, tables.FTRL):
        return {"n": (dim, rule.initial_accumulator), "z": (dim, 0.0)}
    return {}


# Each moves rows["values"] by gradients [ids, dim]; t counts from 1.


def _sgd(rule: Any, rows: Arrays, g: np.ndarray, lr: Any, t: Any) -> None:
    rows["values"] -= lr * g


def _adagrad(rule: Any, rows: Arrays, g: np.ndarray, lr: Any, t: Any) -> None:
    rows["sum"] += g * g
    rows["values"] -= lr * g / (np.sqrt(rows["sum"]) + np.float32(rule.eps))


def _rowwise(rule: Any, rows: Arrays, g: np.ndarray, lr: Any, t: Any) -> None:
    squares = np.mean(g.astype(np.float64) ** 2, axis=1, keepdims=True)
    rows["sum"] += squares.astype(np.float32)
    rows["values"] -= lr / (np.sqrt(rows["sum"]) + np.float32(rule.eps)) * g


def _adam(rule: Any, rows: Arrays, g: np.ndarray, lr: Any, t: Any) -> None:
    first, second = rule.betas
    rows["m"] += (g - rows["m"]) * np.float32(1.0 - first)
    rows["v"] += (g * g - rows["v"]) * np.float32(1.0 - second)
    bias = np.sqrt(1.0 - second ** np.float64(t)) / (
        1.0 - first ** np.float64(t)
    )
    rate = np.asarray(float(lr) * bias, np.float32)
    rows["values"] -= (
        rate * rows["m"] / (np.sqrt(rows["v"]) + np.float32(rule.eps))
    )


def _ftrl(rule: Any, rows: Arrays, g: np.ndarray, lr: Any, t: Any) -> None:
    if lr == 0:
        return
    w, n, z = rows["values"], rows["n"], rows["z"]
    p = -rule.learning_rate_power
    squares = n + g * g
    z += g + 2.0 * rule.l2_shrinkage * w - (squares**p - n**p) / lr * w
    shrunk = np.sign(z) * np.maximum(np.abs(z) - rule.l1, 0.0)
    below = squares**p / lr + 2.0 * (rule.l2 + rule.beta / (2.0 * lr))
    kept = 1.0
    if rule.l21 > 0:
        norm = np.linalg.norm(shrunk, axis=1, keepdims=True)
        limit = np.sqrt(w.shape[1]) * rule.l21
        kept = np.maximum(0.0, 1.0 - limit / np.maximum(norm, 1e-30))
    w[:] = -kept * shrunk / below
    n[:] = squares


_MOVES = {
    optimizers.SGD: _sgd,
    optimizers.Adagrad: _adagrad,
    tables.RowwiseAdagrad: _rowwise,
    tables.SparseAdam: _adam,
    tables.FTRL: _ftrl,
}
