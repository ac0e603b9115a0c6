"""Reads a file of torch.save without running what is in it.

A pickle may name any function of any module, and the ordinary Unpickler calls
it. PyTorch refuses that from 2.6 on (weights_only). In the versions before it
that option cannot read a float, and torch.load of 1.13.0 ignores its
`pickle_module`, so the file is read here. It is a zip archive with a pickle,
`data.pkl`, and the bytes of each storage, `data/KEY`.
"""

from __future__ import annotations

import collections
import pickle
import zipfile
from typing import Any, BinaryIO

import torch

# What the pickle calls a storage, and the elements that it has.
_STORAGES = {
    "BFloat16Storage": torch.bfloat16,
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "ShortStorage": torch.int16,
}


def _tensor(storage, offset, size, stride, requires_grad, *_):
    # as_strided refuses what lies outside of the storage.
    return storage.as_strided(size, stride, offset).requires_grad_(
        requires_grad
    )


def _parameter(data, requires_grad, *_):
    return torch.nn.Parameter(data, requires_grad)


# By module and name. Protocol 2 of pickle has the names of Python 2.
_ALLOWED = {
    ("__builtin__", "complex"): complex,
    ("builtins", "complex"): complex,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch", "Size"): torch.Size,
    ("torch", "device"): torch.device,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
}


class _Unpickler(pickle.Unpickler):
    """Makes tensors, numbers, text, and lists and dicts of them alone."""

    def __init__(self, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(archive.open(f"{folder}/data.pkl"))
        self._archive = archive
        self._folder = folder
        self._storages: dict[str, torch.Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:
        allowed = _ALLOWED.get((module, name))
        if allowed is not None:
            return allowed
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if module == "torch" and isinstance(vars(torch).get(name), torch.dtype):
            return vars(torch)[name]
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> torch.Tensor:
        """A storage, as a tensor of one dimension."""
        kind, dtype, key, _, count = pid
        if kind != "storage" or not isinstance(dtype, torch.dtype):
            raise pickle.UnpicklingError(f"a record of kind {kind!r}")
        if key not in self._storages:
            self._storages[key] = self._read(dtype, str(key), int(count))
        return self._storages[key]

    def _read(self, dtype: torch.dtype, key: str, count: int) -> torch.Tensor:
        if count == 0:
            return torch.empty(0, dtype=dtype)
        entry = self._archive.getinfo(f"{self._folder}/data/{key}")
        size = torch.empty(0, dtype=dtype).element_size()
        # A compressed entry could be far longer than the file.
        if (
            entry.compress_type != zipfile.ZIP_STORED
            or entry.file_size != count * size
        ):
            raise pickle.UnpicklingError(f"data/{key} is not {count} elements")
        return torch.frombuffer(
            bytearray(self._archive.read(entry)), dtype=dtype
        )


def load(file: BinaryIO) -> Any:
    """Returns what torch.save wrote.

    Raises:
      pickle.UnpicklingError: the file holds something else.
    """
    with zipfile.ZipFile(file) as archive:
        pickles = [
            name
            for name in archive.namelist()
            if name.endswith("/data.pkl") and name.count("/") == 1
        ]
        if len(pickles) != 1:
            raise pickle.UnpicklingError("no data.pkl")
        unpickler = _Unpickler(archive, pickles[0].partition("/")[0])
        try:
            return unpickler.load()
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise pickle.UnpicklingError(str(error)) from error
