"""Between a model's tensors and the memory that the servers read and write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Optional

import torch


class Staging:
    """Copies gradients out and values in, by the number of the tensor.

    Tensors on the host are copied at once. For those on a GPU the buffers are
    pinned, copies run on a stream of their own, and each gradient leaves as
    its copy is there.

    Args:
      tensors: of the model, on any device and of any dtype.
      values, gradients: float32 on the host, of the same shapes.
    """

    def __init__(
        self,
        tensors: list[torch.Tensor],
        values: list[torch.Tensor],
        gradients: list[torch.Tensor],
    ):
        self._tensors = tensors
        self.values = values
        self._gradients = gradients
        self._stream: Optional[torch.cuda.Stream] = None
        device = next((t.device for t in tensors if t.is_cuda), None)
        if device is not None:
            self._stream = torch.cuda.Stream(device)
            for buffers in (values, gradients):
                _pin(buffers)

    def send(
        self,
        tensors: Iterable[tuple[int, torch.Tensor]],
        ready: Callable[[int], None],
    ) -> None:
        """Copies each to its gradient's place and calls `ready` with it."""
        pending = []
        for number, tensor in tensors:
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
        for number, event in pending:
            event.synchronize()
            ready(number)

    def take(self, numbers: Iterable[int]) -> None:
        """Copies values into the model's tensors, in place."""
        for number in numbers:
            tensor = self._tensors[number]
            if tensor.is_cuda:
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


def _pin(buffers: list[torch.Tensor]) -> None:
    """Locks the memory of one flat buffer, so that a GPU copies by itself."""
    begin = min(b.data_ptr() for b in buffers)
    end = max(b.data_ptr() + b.numel() * b.element_size() for b in buffers)
    # Pages that cannot be locked are copied through others, more slowly.
    torch.cuda.cudart().cudaHostRegister(begin, end - begin, 0)
