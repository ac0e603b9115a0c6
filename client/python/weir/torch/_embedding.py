"""Modules whose rows are on the servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional

from weir.errors import Closed, InvalidArgument
from weir.optimizers import SGD
from weir.tables import RowOptimizer, Table
from weir.torch import _context
from weir.torch._job_rows import Asked, JobRows

_MODES = ("sum", "mean", "max")


class _Rows(torch.nn.Module):
    """What both modules share: ids to rows, and the rows' gradients back."""

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        name: str,
        optimizer: RowOptimizer = SGD(lr=0.01),
        sparse: bool = True,
        **table: Any,
    ):
        super().__init__()
        self.table = Table(name, embedding_dim, optimizer, **table)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None and padding_idx < 0:
            if num_embeddings is None:
                raise InvalidArgument(
                    f"table '{name}': padding_idx {padding_idx} counts from "
                    "num_embeddings, which is None"
                )
            padding_idx += num_embeddings
        self.padding_idx = padding_idx
        # Of the next step on; as `lr` of a parameter group.
        self.lr = float(optimizer.lr)

    def extra_repr(self) -> str:
        return (
            f"{self.num_embeddings}, {self.embedding_dim}, "
            f"name={self.table.name!r}, optimizer={self.table.optimizer}"
        )

    def _fetch(
        self, ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, int | None]:
        """Places in rows, as `ids` are; rows [n + 1, dim]; that of padding."""
        of_job = _job_rows(self)
        train = self._trains()
        asked = of_job.take(self, ids, train)
        if asked is None:
            asked = self._ask(ids)
            of_job.lookup(self.table.name, asked.ids, asked.out, train)
        here = asked.ids
        rows = torch.from_numpy(asked.rows).to(ids.device)
        if train:
            rows.requires_grad_(True)
            # As backward has it; a graph that is dropped leaves nothing.
            rows.register_hook(
                lambda gradient: of_job.add(self.table.name, here, gradient)
            )
        padding = None if self.padding_idx is None else len(here)
        return asked.places, rows, padding

    def _trains(self) -> bool:
        return self.training and torch.is_grad_enabled()

    def _ask(self, ids: torch.Tensor) -> Asked:
        if (
            ids.is_floating_point()
            or ids.is_complex()
            or (ids.dtype == torch.bool)
        ):
            raise InvalidArgument(
                f"table '{self.table.name}': ids are {ids.dtype}; give integers"
            )
        unique, places = torch.unique(ids.long(), return_inverse=True)
        if self.padding_idx is not None:
            kept = unique != self.padding_idx
            if not bool(kept.all()):
                number = kept.cumsum(0) - 1
                number[~kept] = kept.sum()
                unique, places = unique[kept], number[places]
        here = unique.cpu().numpy()
        self._check_range(here)
        rows = np.empty((len(here) + 1, self.embedding_dim), np.float32)
        rows[-1] = 0.0
        return Asked(ids, places, here.view(np.uint64), rows)

    def _check_range(self, ids: np.ndarray) -> None:
        """REQUIRES: `ids` ascend."""
        if len(ids) == 0:
            return
        if ids[0] < 0:
            raise InvalidArgument(
                f"table '{self.table.name}': id {ids[0]} is negative"
            )
        if self.num_embeddings is not None and ids[-1] >= self.num_embeddings:
            raise InvalidArgument(
                f"table '{self.table.name}': id {ids[-1]} is not below "
                f"num_embeddings {self.num_embeddings}"
            )


def _job_rows(module: _Rows) -> JobRows:
    of_job = _context.context().rows
    if of_job is None or module.table not in of_job.tables:
        raise Closed(
            f"table '{module.table.name}' is not declared: make the "
            "DistributedOptimizer of a model that has this module first"
        )
    return of_job


def prefetch(inputs: Mapping[_Rows, torch.Tensor]) -> None:
    """Starts to fetch rows of several modules at once, before they forward.

    They come while the script does other things; the next forward of each
    module takes them, if its ids are those given here. Call it after `step`,
    with the ids of the next batch. In async it may come before `step`: the rows
    are then a step older. In sync rows are those of a step.
    """
    for module in inputs:
        of_job = _job_rows(module)
    trains = {module._trains() for module in inputs}
    if len(trains) > 1:
        raise InvalidArgument(
            "prefetch: some modules are in eval() and some are not"
        )
    if inputs:
        # Copies: the script may put the next batch into its tensors.
        asked = {m: m._ask(ids.clone()) for m, ids in inputs.items()}
        of_job.prefetch(asked, trains.pop())


class EmbeddingBag(_Rows):
    """torch.nn.EmbeddingBag whose rows are on the servers, by id.

    A row is made when its id is first seen in training. The rows' gradients
    leave with the next `step` of the `DistributedOptimizer` whose model has
    this module, and the table's own optimizer moves them; they are not in
    `parameters()` and not in `state_dict()`, and clipping does not see them. In
    `eval()` rows are read as they are, and none is made.

    Args:
      num_embeddings: ids are below it; None: any id >= 0.
      embedding_dim, mode, padding_idx, include_last_offset: as torch's. The row
        of `padding_idx` is zeros and not on the servers.
      name: of the table, [a-z0-9_]. Modules of one name share their rows, and
        must declare the same.
      optimizer: SGD, Adagrad, RowwiseAdagrad, SparseAdam or FTRL of
        `weir.torch`. Its lr is that of the attribute `lr` at each step.
      sparse: taken for torch's sake: gradients always are sparse.
      table: what else `weir.Table` takes: init, init_scale, admission_count...
    """

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        *,
        name: str,
        optimizer: RowOptimizer = SGD(lr=0.01),
        mode: str = "mean",
        sparse: bool = True,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        **table: Any,
    ):
        super().__init__(
            num_embeddings,
            embedding_dim,
            padding_idx,
            name=name,
            optimizer=optimizer,
            **table,
        )
        if mode not in _MODES:
            raise InvalidArgument(
                f"table '{name}': no mode is called {mode!r}; choose "
                + ", ".join(_MODES)
            )
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(
        self,
        input: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """[bags, embedding_dim]; arguments as torch.nn.EmbeddingBag's."""
        places, rows, padding = self._fetch(input)
        return functional.embedding_bag(
            places,
            rows,
            offsets if offsets is None else offsets.long(),
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=padding,
        )


class Embedding(_Rows):
    """torch.nn.Embedding whose rows are on the servers; see `EmbeddingBag`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[*input.shape, embedding_dim]."""
        places, rows, padding = self._fetch(input)
        return functional.embedding(places, rows, padding_idx=padding)


def modules_of(model: torch.nn.Module) -> list[_Rows]:
    return [m for m in model.modules() if isinstance(m, _Rows)]
