"""Names, dtypes and memory of a model's parameters and buffers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import torch

from weir.errors import InvalidArgument

_EXPORT_DTYPES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclasses.dataclass
class Entry:
    """A tensor that the servers keep."""

    name: str
    tensor: torch.Tensor
    group: int = 0  # of the optimizer
    trained: bool = False  # one of the optimizer's parameters
    buffer: bool = False
    finite: bool = True  # as the script made it; of a buffer
    aliases: list[str] = dataclasses.field(default_factory=list)

    @property
    def export_dtype(self) -> str:
        return _EXPORT_DTYPES[self.tensor.dtype]


def _unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The model in what puts a prefix before every name."""
    while True:
        if "_orig_mod" in model._modules:  # torch.compile's
            model = model._orig_mod
        elif isinstance(
            model,
            (
                torch.nn.DataParallel,
                torch.nn.parallel.DistributedDataParallel,
            ),
        ):
            model = model.module
        else:
            return model


def is_finite(tensor: torch.Tensor) -> bool:
    return bool(tensor.float().isfinite().all())


def _check_values(name: str, tensor: torch.Tensor) -> None:
    """Raises: `weir.InvalidArgument` if float32 does not keep a value.

    The last digits of a float64 do not count.
    """
    if tensor.is_floating_point() and tensor.dtype != torch.float64:
        return
    given = tensor.detach().cpu()
    carried = given.float()
    if given.is_floating_point():
        lost = carried.isfinite() != given.isfinite()
    else:
        lost = carried.to(given.dtype) != given
    if lost.any():
        raise InvalidArgument(
            f"'{name}' has the value {given[lost][0].item()}, which is another "
            "one as float32, and servers keep float32. If every worker makes "
            "it alike, register it as a buffer with persistent=False"
        )


def entries(model: torch.nn.Module, groups: Iterable[dict]) -> list[Entry]:
    """Parameters in forward order, then buffers; none that is empty.

    Raises: `weir.InvalidArgument` for a parameter of the optimizer that is not
    the model's, and for a dtype or a value that cannot be kept as float32.
    """
    group_of = {
        id(parameter): g
        for g, group in enumerate(groups)
        for parameter in group["params"]
    }
    found: dict[int, Entry] = {}

    def add(name: str, tensor: torch.Tensor | None, buffer: bool) -> None:
        if tensor is None or tensor.numel() == 0:
            return
        if id(tensor) in found:
            found[id(tensor)].aliases.append(name)
            return
        if tensor.dtype not in _EXPORT_DTYPES:
            raise InvalidArgument(
                f"'{name}' is of {tensor.dtype}; servers keep float32"
            )
        _check_values(name, tensor)
        found[id(tensor)] = Entry(
            name,
            tensor,
            group_of.get(id(tensor), 0),
            id(tensor) in group_of,
            buffer,
            not buffer or is_finite(tensor),
        )

    # Every name that state_dict has: named_parameters and named_buffers give
    # what is tied, or in a module with two names, once.
    model = _unwrapped(model)
    modules = [
        (prefix + "." if prefix else "", module)
        for prefix, module in model.named_modules(remove_duplicate=False)
    ]
    for prefix, module in modules:
        for name, parameter in module._parameters.items():
            add(prefix + name, parameter, buffer=False)
    persistent = set(model.state_dict(keep_vars=True))
    for prefix, module in modules:
        for name, tensor in module._buffers.items():
            if prefix + name in persistent:
                add(prefix + name, tensor, buffer=True)
    for group in groups:
        for parameter in group["params"]:
            if parameter.numel() > 0 and id(parameter) not in found:
                raise InvalidArgument(
                    "the optimizer has a parameter of shape "
                    f"{list(parameter.shape)} that the model has not"
                )
    return list(found.values())
