"""Reads safetensors files by the format's own words, with nothing of Weir's."""

import json
import struct

import numpy as np

_DTYPES = {
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "U32": np.uint32,
    "U64": np.uint64,
}


def read_safetensors(path):
    """Arrays by name, in the file's dtypes."""
    with open(path, "rb") as file:
        content = file.read()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(
            content[begin:end], _DTYPES[entry["dtype"]]
        ).reshape(entry["shape"])
    return tensors
