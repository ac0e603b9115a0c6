"""Who may include whom: layers, and the rooms of a layer."""

import os
import re

from checks.ratchet import Measure
from checks.tree import HEADER, SOURCE, includes

# Who may include whom; a folder may always include itself. The longest prefix
# that fits a path is its layer. Folders that are not here are above all.
LAYERS = {
    "common": (),
    "proto": ("common",),
    "client": ("common", "proto"),
    "server/ps": ("common", "proto"),
    "server/chief": ("common", "proto", "client"),
    "worker": ("common", "proto", "client"),
    "deploy": None,
    "bench": None,
    "examples": None,
    "tests": None,
}
# Worker 0 hosts the chief in a cluster that has none.
EXCEPTIONS = {("worker/worker_main.cc", "server/chief")}
NOT_IN_COMMON = re.compile(
    r"google/protobuf|grpc|\.pb\.h|cuda|cudnn|cublas|curand|nccl", re.I)
PUBLIC_HEADER = re.compile(r"client/cc/weir\w*\.h$")
STANDARD_HEADER = re.compile(r"<[a-z_]+>$|<std\w+\.h>$")


FOLDER_HEADERS = 16  # the aim is about 15


def layer_of(path):
    fits = [layer for layer in LAYERS if path.startswith(layer + "/")]
    return max(fits, key=len) if fits else None


def check_layers(tree):
    for path, text in tree.sources(*SOURCE):
        here = layer_of(path)
        for number, target in includes(text):
            there = layer_of(target[1:-1]) if target[0] == '"' else None
            if here == "common" and NOT_IN_COMMON.search(target):
                yield f"{path}:{number}: common/ may not know {target}"
            if PUBLIC_HEADER.match(path) and not (
                    STANDARD_HEADER.match(target) or
                    PUBLIC_HEADER.match(target[1:-1])):
                yield (f"{path}:{number}: a public header includes {target}; "
                       "it may name the standard library only")
            if here is None or there is None or there == here:
                continue
            allowed = LAYERS[here]
            if allowed is not None and there not in allowed and \
                    (path, there) not in EXCEPTIONS:
                yield f"{path}:{number}: {here} may not include {target}"


def measure_folders(tree):
    counts = {}
    for path, _ in tree.sources(*HEADER):
        folder = os.path.dirname(path)
        counts[folder] = counts.get(folder, 0) + 1
    for folder, count in counts.items():
        yield Measure("headers", folder, count, FOLDER_HEADERS, folder)
