"""Copies between a GPU's tensors and pinned memory, beside what computes."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class GpuCopies:
    """Each direction has a stream of its own, on every device.

    Args:
      buffers: of the host, each one flat piece of memory that is locked, so
        that a GPU copies by itself.
    """

    def __init__(self, buffers: Iterable[list[torch.Tensor]]):
        self._down: dict[torch.device, torch.cuda.Stream] = {}
        self._up: dict[torch.device, torch.cuda.Stream] = {}
        for buffer in buffers:
            _pin(buffer)

    def owns(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cuda

    @torch.no_grad()
    def down(self, to: torch.Tensor, tensor: torch.Tensor) -> torch.cuda.Event:
        """Copies it behind what is enqueued now; the event says when."""
        stream = _stream_of(self._down, tensor.device)
        stream.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(stream):
            # What float() makes is of this stream.
            to.copy_(tensor.float(), non_blocking=True)
            # Not reused before it was read.
            tensor.record_stream(stream)
            copied = torch.cuda.Event()
            copied.record(stream)
        return copied

    @torch.no_grad()
    def up(
        self, tensor: torch.Tensor, source: torch.Tensor, at_once: bool = False
    ) -> None:
        """Copies it behind what is enqueued now, or beside that."""
        stream = _stream_of(self._up, tensor.device)
        if not at_once:
            stream.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(stream):
            tensor.copy_(source, non_blocking=True)

    def join(self) -> None:
        """Waits for the copies up; what is enqueued later follows them."""
        for device, stream in self._up.items():
            torch.cuda.current_stream(device).wait_stream(stream)
            stream.synchronize()


def _stream_of(
    streams: dict[torch.device, torch.cuda.Stream], device: torch.device
) -> torch.cuda.Stream:
    if device not in streams:
        streams[device] = torch.cuda.Stream(device)
    return streams[device]


def _pin(buffers: list[torch.Tensor]) -> None:
    begin = min(b.data_ptr() for b in buffers)
    end = max(b.data_ptr() + b.numel() * b.element_size() for b in buffers)
    # Pages that cannot be locked are copied through others, more slowly.
    torch.cuda.cudart().cudaHostRegister(begin, end - begin, 0)
