"""What a script reports of its training."""

from __future__ import annotations

import operator
from typing import Any

from weir.errors import InvalidArgument


def _number(name: str, value: Any) -> float:
    """`value`, which may be an array or a tensor with one element."""
    if hasattr(value, "detach"):  # a PyTorch tensor
        value = value.detach()
    if not isinstance(value, (str, bytes, bytearray)):
        try:
            if hasattr(value, "reshape"):
                # NumPy 2.4 makes a float of arrays without dimensions alone.
                value = value.reshape(())
            return float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            pass
    raise InvalidArgument(f"the metric '{name}' is {value!r}, not a number")


def report(
    loss: Any, examples: Any, metrics: dict[str, Any]
) -> tuple[list[tuple[str, float]], int]:
    """The report as the core takes it."""
    values = {} if loss is None else {"loss": loss}
    values.update(metrics)
    try:
        count = 0 if examples is None else operator.index(examples)
    except TypeError:
        count = -1
    if not 0 <= count < 1 << 63:
        raise InvalidArgument(f"examples is {examples!r}, not a count")
    return [(name, _number(name, v)) for name, v in values.items()], count
