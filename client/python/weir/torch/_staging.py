"""Between a model's tensors and the memory that the servers read and write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import torch


class Staging:
    """Copies gradients out and values in, by the number of the tensor.

    Tensors on the host are copied at once; what `move_in` took is where values
    arrive. For those on a GPU the buffers are pinned, copies run on a stream of
    their own, and each gradient leaves as its copy is there.

    Args:
      tensors: of the model, on any device and of any dtype.
      values, gradients: float32 on the host, of the same shapes.
    """

    def __init__(
        self,
        tensors: list[torch.Tensor],
        values: list[np.ndarray],
        gradients: list[np.ndarray],
    ):
        self._tensors = tensors
        self._memory = values
        self.values = [torch.from_numpy(array) for array in values]
        self._gradients = [torch.from_numpy(array) for array in gradients]
        # By number: an empty view of a parameter that was moved in.
        self._marks: dict[int, torch.Tensor] = {}
        # Kept alive: after a wait that was interrupted they are still read.
        self._lent: list[torch.Tensor] = []
        self._stream: torch.cuda.Stream | None = None
        device = next((t.device for t in tensors if t.is_cuda), None)
        if device is not None:
            self._stream = torch.cuda.Stream(device)
            for buffers in (self.values, self._gradients):
                _pin(buffers)

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
    ) -> None:
        """Copies each to its gradient's place and calls `ready` with it.

        With `lend` those that can be sent as they are go to it instead, all at
        once; they must not change before `give_back`.
        """
        pending, lent = [], []
        for number, tensor in tensors:
            if lend is not None and _is_lendable(tensor):
                self._lent.append(tensor)
                lent.append((number, tensor.detach().numpy()))
                continue
            if not tensor.is_cuda:
                self._gradients[number].copy_(tensor)
                ready(number)
                continue
            # Behind what backward has enqueued.
            self._stream.wait_stream(torch.cuda.current_stream(tensor.device))
            with torch.cuda.stream(self._stream):
                converted = tensor.float()
                self._gradients[number].copy_(converted, non_blocking=True)
                # Not reused before the copy was made.
                converted.record_stream(self._stream)
                event = torch.cuda.Event()
                event.record(self._stream)
            pending.append((number, event))
        if lent:
            lend(lent)
        for number, event in pending:
            event.synchronize()
            ready(number)

    def give_back(self) -> None:
        """Nobody reads what was lent any more."""
        self._lent.clear()

    def take(self, numbers: Iterable[int]) -> None:
        """Copies values into the model's tensors, in place."""
        for number in numbers:
            tensor = self._tensors[number]
            if tensor.data_ptr() == self.values[number].data_ptr():
                # Moved in, and still there. For autograd it has changed: a
                # graph from before must not run backward.
                self._marks[number].zero_()
            elif tensor.is_cuda:
                self._stream.wait_stream(
                    torch.cuda.current_stream(tensor.device)
                )
                with torch.cuda.stream(self._stream):
                    tensor.copy_(self.values[number], non_blocking=True)
            else:
                tensor.copy_(self.values[number])
        if self._stream is not None:
            current = torch.cuda.current_stream(self._stream.device)
            current.wait_stream(self._stream)
            # The next pull writes what is read here.
            self._stream.synchronize()


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


def _pin(buffers: list[torch.Tensor]) -> None:
    """Locks the memory of one flat buffer, so that a GPU copies by itself."""
    begin = min(b.data_ptr() for b in buffers)
    end = max(b.data_ptr() + b.numel() * b.element_size() for b in buffers)
    # Pages that cannot be locked are copied through others, more slowly.
    torch.cuda.cudart().cudaHostRegister(begin, end - begin, 0)
