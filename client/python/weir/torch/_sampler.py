"""Which samples this worker reads."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import torch
from torch.utils.data import Sampler

from weir.errors import InvalidArgument
from weir.torch import _context


class DistributedSampler(Sampler[int]):
    """Deals the batches of each epoch to the workers, none twice.

    Epoch e is one permutation of the data set, cut into batches; batch b of
    the whole training is the push b div size of rank b mod size. So no sample
    is repeated to fill up a batch, each is read once an epoch whatever the
    number of workers, and a worker that was started again goes on with the
    batch after its last push. Workers may differ by one batch an epoch.

    Use it as torch's: `DataLoader(data, batch_size=32, sampler=sampler)`. Its
    n-th iteration reads epoch n, counted from 0 or `start_epoch()`, of which
    nothing is left if it was read before a restart; `set_epoch` says another.

    Args:
      dataset: its length is looked at when an epoch begins.
      batch_size: samples of one push: the DataLoader's batch_size, times the
        batches whose gradients are accumulated.
      shuffle: in the order of a permutation drawn from (seed, epoch).
      seed: the same on every worker.
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
    ):
        if batch_size < 1:
            raise InvalidArgument(f"batch_size is {batch_size}")
        self._context = _context.context()
        self._dataset = dataset
        self._batch_size = batch_size
        self._shuffle = shuffle
        self._seed = seed
        self._epoch = 0  # of the newest iteration, or the one that was set
        self._next_epoch = 0
        self._context.resume = self._resume

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iteration reads, from 0."""
        self._epoch = self._next_epoch = epoch

    def _batches(self) -> int:
        """Of one epoch, over all workers."""
        return -(-len(self._dataset) // self._batch_size)

    def _mine(self, epoch: int) -> range:
        """Batches of the whole training: this rank's, of `epoch`."""
        rank, size = self._context.rank, self._context.size
        begin, end = epoch * self._batches(), (epoch + 1) * self._batches()
        resumed = self._context.first_push * size + rank
        first = max(begin + (rank - begin) % size, resumed)
        return range(first, end, size)

    @property
    def start_epoch(self) -> int:
        """The epoch of this worker's next batch: `weir.torch.start_epoch`."""
        rank, size = self._context.rank, self._context.size
        pushed = self._context.first_push * size + rank
        return pushed // max(self._batches(), 1)

    def _resume(self) -> int:
        self.set_epoch(self.start_epoch)
        return self.start_epoch

    def __iter__(self) -> Iterator[int]:
        # Not before the first sample is asked for: a DataLoader may make two
        # iterators and use one of them.
        epoch = self._epoch = self._next_epoch
        self._next_epoch += 1
        count = len(self._dataset)
        if self._shuffle:
            generator = torch.Generator()
            # Seeds of one digit apart draw unlike permutations; epochs of one
            # seed must not meet those of the next.
            generator.manual_seed((self._seed << 32) + epoch)
            order = torch.randperm(count, generator=generator).tolist()
        else:
            order = list(range(count))
        base = epoch * self._batches()
        for batch in self._mine(epoch):
            begin = (batch - base) * self._batch_size
            yield from order[begin : begin + self._batch_size]

    def __len__(self) -> int:
        base, count = self._epoch * self._batches(), len(self._dataset)
        return sum(
            min(self._batch_size, count - (batch - base) * self._batch_size)
            for batch in self._mine(self._epoch)
        )


def start_epoch() -> int:
    """Where this worker goes on: 0, or after a restart the epoch of its next
    batch by the last `DistributedSampler` that was made, which counts on from
    there."""
    resume = _context.context().resume
    return 0 if resume is None else resume()
