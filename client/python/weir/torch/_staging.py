"""Between a model's tensors and the memory that the servers read and write."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable

import numpy as np
import torch

from ._gpu_copies import GpuCopies

# Between two looks at what is on its way, in seconds.
LOOK_EVERY = 20e-6


class Staging:
    """Copies gradients out and values in, by the number of the tensor.

    Tensors on the host are copied at once; what `move_in` took is where values
    arrive. Those on a GPU are copied while it computes: each gradient leaves
    when its copy is here, and values that come back before the last one has
    left go up at once.

    Args:
      tensors: of the model, on any device and of any dtype.
      values, gradients: float32 on the host, of the same shapes.
      copies: how tensors of a GPU are copied, where the model has any; for
        tests.
    """

    def __init__(
        self,
        tensors: list[torch.Tensor],
        values: list[np.ndarray],
        gradients: list[np.ndarray],
        copies: GpuCopies | None = None,
    ):
        self._tensors = tensors
        self._memory = values
        self.values = [torch.from_numpy(array) for array in values]
        self._gradients = [torch.from_numpy(array) for array in gradients]
        # By number: an empty view of a parameter that was moved in.
        self._marks: dict[int, torch.Tensor] = {}
        # Kept alive: after a wait that was interrupted they are still read.
        self._lent: list[torch.Tensor] = []
        self._copies = copies
        if copies is None and any(t.is_cuda for t in tensors):
            self._copies = GpuCopies([self.values, self._gradients])
        # Gradients whose copy `send` began, and those of them that have left
        # and whose values may be taken before the step's other ones.
        self._leaving: deque[tuple[int, torch.cuda.Event, bool]] = deque()
        self._left: deque[int] = deque()
        self._taken: set[int] = set()

    def move_in(self, numbers: Iterable[int], model: torch.nn.Module) -> None:
        """Gives parameters the memory of their values, where nobody can tell.

        From then on values arrive in them, without a copy. Those stay where
        they are that are not plain float32 in host memory of their own: views,
        what other processes see, what shares memory with another tensor of
        `model`.
        """
        owners = Counter(
            _storage(tensor).data_ptr()
            for tensor in [*model.parameters(), *model.buffers()]
            if _is_plain(tensor)
        )
        for number in numbers:
            tensor = self._tensors[number]
            if (
                _is_plain(tensor)
                and tensor.dtype == torch.float32
                and tensor.is_contiguous()
                and _storage(tensor).nbytes() == 4 * tensor.numel()
                and owners[tensor.data_ptr()] == 1
            ):
                # A storage of its own: share_memory() moves that elsewhere, and
                # `take` must see it.
                tensor.data = torch.from_numpy(self._memory[number])
                self._marks[number] = tensor.detach().view(-1)[:0]

    def send(
        self,
        tensors: Iterable[tuple[int, torch.Tensor]],
        ready: Callable[[int], None],
        lend: Callable[[list[tuple[int, np.ndarray]]], None] | None = None,
        take_back: Collection[int] = (),
    ) -> None:
        """Copies each to its gradient's place and calls `ready` with it.

        With `lend` those that can be sent as they are go to it instead, all at
        once; they must not change before `give_back`. What a GPU copies leaves
        by and by, the last of it in `send_rest`. Values of the tensors in
        `take_back` are taken as soon as they are here: nothing that is enqueued
        later may read the old ones.
        """
        lent = []
        for number, tensor in tensors:
            if lend is not None and _is_lendable(tensor):
                self._lent.append(tensor)
                lent.append((number, tensor.detach().numpy()))
            elif self._copies is not None and self._copies.owns(tensor):
                copied = self._copies.down(self._gradients[number], tensor)
                self._leaving.append((number, copied, number in take_back))
            else:
                self._gradients[number].copy_(tensor)
                ready(number)
        if lent:
            lend(lent)
        self._pass_on(ready)

    def send_rest(
        self,
        ready: Callable[[int], None],
        has_values: Callable[[int], bool],
    ) -> None:
        """Waits until all that `send` was given has left.

        Values come back meanwhile: `has_values` tells of which tensors.
        """
        self._taken.clear()  # of a step whose wait was interrupted
        while self._leaving:
            if not self._pass_on(ready) and not self._take_one(has_values):
                time.sleep(LOOK_EVERY)
        # What comes later is for `take_rest`, behind a wait.
        while self._take_one(has_values):
            pass
        self._left.clear()

    def give_up(self) -> None:
        """Forgets what has not left; it stays out of the push."""
        self._leaving.clear()
        self._left.clear()

    def _pass_on(self, ready: Callable[[int], None]) -> bool:
        """Lets the gradients leave that are here; whether there was one."""
        some = False
        while self._leaving and self._leaving[0][1].query():
            number, _, take_back = self._leaving.popleft()
            ready(number)
            some = True
            if take_back:
                self._left.append(number)
        return some

    def _take_one(self, has_values: Callable[[int], bool]) -> bool:
        # Values come in the order in which gradients left.
        if not self._left or not has_values(self._left[0]):
            return False
        number = self._left.popleft()
        # Its gradient was here, so backward has read the tensor.
        self._copies.up(self._tensors[number], self.values[number], True)
        self._taken.add(number)
        return True

    def give_back(self) -> None:
        """Nobody reads what was lent any more."""
        self._lent.clear()

    def take_rest(self, numbers: Iterable[int]) -> None:
        """As `take`, without those that `send_rest` took in this step."""
        taken, self._taken = self._taken, set()
        self.take(number for number in numbers if number not in taken)

    def take(self, numbers: Iterable[int]) -> None:
        """Copies values into the model's tensors, in place."""
        for number in numbers:
            tensor = self._tensors[number]
            if tensor.data_ptr() == self.values[number].data_ptr():
                # Moved in, and still there. For autograd it has changed: a
                # graph from before must not run backward.
                self._marks[number].zero_()
            elif self._copies is not None and self._copies.owns(tensor):
                self._copies.up(tensor, self.values[number])
            else:
                tensor.copy_(self.values[number])
        if self._copies is not None:
            # The next pull writes what is read here.
            self._copies.join()


def _storage(tensor: torch.Tensor) -> torch.Storage:
    # PyTorch 2 has both, and warns of the other one.
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage()
    return tensor.storage()


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether it is elements in host memory of this process."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not tensor.is_shared()
    )


def _is_lendable(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and tensor.dtype == torch.float32
        and tensor.is_contiguous()
    )
