"""Who may include whom: layers, and the rooms of a layer."""

import os
import re

from checks.ratchet import Measure
from checks.tree import HEADER, SOURCE, includes, lines_of

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
    r"google/protobuf|grpc|\.pb\.h|cuda|cudnn|cublas|curand|nccl", re.I
)
PUBLIC_HEADER = re.compile(r"client/cc/weir\w*\.h$")
STANDARD_HEADER = re.compile(r"<[a-z_]+>$|<std\w+\.h>$")


# The rooms of a layer are its folders, "" the layer's own. For each, from the
# top floor down, the rooms of the same layer that it may include: those below
# it only, so that there is no cycle.
ROOMS = {
    "server/ps": {
        "": ("service", "store", "plan", "memory"),
        "service": ("store", "memory"),
        "store": ("rows", "consistency", "block", "plan"),
        "rows": ("consistency", "block", "plan", "table"),
        "consistency": ("block",),
        "block": ("plan", "optimizer", "memory"),
        "plan": ("table", "optimizer"),
        "table": ("optimizer", "memory"),
        "optimizer": (),
        "memory": (),
    },
    "client/cc": {
        "sdk": ("job", "parameters", "transport", ""),
        "job": ("parameters", "transport"),
        "parameters": ("transport",),
        "transport": (),
        "": (),
    },
    "server/chief": {
        "": ("start", "checkpoint", "files", "state", "page"),
        "start": ("state",),
        "checkpoint": ("state",),
        "files": ("state",),
        "state": ("report",),
        "report": (),
        "page": (),
    },
    "worker/data": {
        "": ("formats",),
        "formats": ("input",),
        "input": (),
    },
    "proto": {
        "task": ("admin", "job", "security"),
        "admin": (),
        "trace": ("",),
        "checkpoint": ("wire", ""),
        "wire": ("job", ""),
        "tensorboard": ("",),
        "security": (),
        "job": ("",),
        "": (),
    },
    "common": {
        "objects": ("io", "base", "threads"),
        "job": ("math", "io", "base"),
        "math": ("base",),
        "io": ("base",),
        "flags": (),
        "metrics": ("base", "threads"),
        "trace": ("base",),
        "base": ("threads",),
        "threads": (),
    },
}
ROOMS_MAX = {"server/ps": 12, "client/cc": 8}
ARROWS_MAX = {"server/ps": 30, "client/cc": 12}
FOLDER_HEADERS = 16  # the aim is about 15


# What has a seam: common/threads/thread.h, common/base/mutex.h, clock.h and
# identity.h. Where the others are, no simulated world comes.
OF_THE_WORLD = re.compile(
    r"\bstd::(?:thread|jthread|mutex|condition_variable|random_device)\b"
    r"|\bthis_thread::sleep|\b(?:steady|system)_clock::now\b"
)
SEAMS = re.compile(
    r"common/threads/|common/base/(?:mutex|clock|identity|malloc_settings)\."
    r"|worker/compute/cuda/"
)


def check_seams(tree):
    for path, text in tree.sources(*SOURCE):
        if LAYERS.get(layer_of(path)) is None or SEAMS.match(path):
            continue
        for number, line in lines_of(text):
            found = OF_THE_WORLD.search(line)
            if found and not line.lstrip().startswith("//"):
                yield (
                    f"{path}:{number}: {found[0]}; take Weir's own, as "
                    'docs/design_notes.md says in "Seams of the world"'
                )


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
                STANDARD_HEADER.match(target)
                or PUBLIC_HEADER.match(target[1:-1])
            ):
                yield (
                    f"{path}:{number}: a public header includes {target}; "
                    "it may name the standard library only"
                )
            if here is None or there is None or there == here:
                continue
            allowed = LAYERS[here]
            if (
                allowed is not None
                and there not in allowed
                and (path, there) not in EXCEPTIONS
            ):
                yield f"{path}:{number}: {here} may not include {target}"


def room_of(path):
    """(layer, room) of a file; (None, "") outside the layers with rooms."""
    for layer in ROOMS:
        if path.startswith(layer + "/"):
            return layer, os.path.dirname(path)[len(layer) + 1 :]
    return None, ""


def _name(layer, room):
    return f"{layer}/{room}" if room else f"{layer} itself"


def arrows(tree):
    """For each (layer, room, room included) the includes that make it."""
    found = {}
    for path, text in tree.sources(*SOURCE):
        layer, here = room_of(path)
        for number, target in includes(text) if layer else ():
            there_layer, there = room_of(target[1:-1])
            if target[0] == '"' and there_layer == layer and there != here:
                found.setdefault((layer, here, there), []).append(
                    f"{path}:{number}: includes {target}"
                )
    return found


def rooms_in(tree):
    """For each layer its rooms, with the number of their sources."""
    found = {layer: {} for layer in ROOMS}
    for path, _ in tree.sources(*SOURCE, ".proto"):
        layer, room = room_of(path)
        if layer:
            found[layer][room] = found[layer].get(room, 0) + 1
    return found


def check_room_table(tree):
    """ROOMS goes down only, and allows no arrow that nobody needs."""
    rooms, used = rooms_in(tree), arrows(tree)
    for layer, table in ROOMS.items():
        floors = list(table)
        for room, allowed in table.items():
            for there in allowed:
                arrow = f"{_name(layer, room)} -> {_name(layer, there)}"
                if there not in floors[floors.index(room) + 1 :]:
                    yield f"ROOMS in layers.py: {arrow} does not go down"
                elif (
                    room in rooms[layer]
                    and there in rooms[layer]
                    and (layer, room, there) not in used
                ):
                    yield f"ROOMS in layers.py: nothing needs {arrow}"


def measure_rooms(tree):
    """Rooms and arrows that ROOMS does not have, and the numbers of both."""
    used = arrows(tree)
    for layer, rooms in rooms_in(tree).items():
        table = ROOMS[layer]
        for room, count in rooms.items():
            if room not in table:
                yield Measure(
                    "room", _name(layer, room), count, 0, _name(layer, room)
                )
        made = {
            arrow: places for arrow, places in used.items() if arrow[0] == layer
        }
        for (_, here, there), places in made.items():
            if there not in table.get(here, ()):
                arrow = f"{_name(layer, here)} -> {_name(layer, there)}"
                yield Measure("arrow", arrow, len(places), 0, layer, places)
        if layer in ROOMS_MAX:
            yield Measure("rooms", layer, len(rooms), ROOMS_MAX[layer], layer)
            yield Measure("arrows", layer, len(made), ARROWS_MAX[layer], layer)


def measure_folders(tree):
    counts = {}
    for path, _ in tree.sources(*HEADER):
        folder = os.path.dirname(path)
        counts[folder] = counts.get(folder, 0) + 1
    for folder, count in counts.items():
        yield Measure("headers", folder, count, FOLDER_HEADERS, folder)
