"""What is measured against a limit, and the list of what is over it today.

A line of ratchet.txt is "kind name size". Nothing in it may get worse, what
gets better must be written down (style_check.py ROOT --tighten does it), and
what is not in it must keep its limit.
"""

import math
import os
import re
from typing import NamedTuple

RATCHET = "tests/style/ratchet.txt"

# What the sizes of a kind count. The limit of one of AT_LEAST is a lower one.
KINDS = {
    "lines": "lines",
    "class": "lines of its body and of its members' definitions",
    "function": "lines",
    "headers": "headers",
    "room": "sources in a room that ROOMS in layers.py does not have",
    "rooms": "rooms",
    "arrow": "includes that ROOMS in layers.py does not allow",
    "arrows": "arrows between its rooms",
    "nested": "nested conditional expressions",
    "conditionals": "conditional expressions in 1,000 lines of product .cc",
    "comments": "% of lines of product .cc that are comments",
    "uncited": "invariants that the .cc of their header does not cite",
    "old-word": "places with a word that docs/glossary.md replaces",
}
AT_LEAST = ("comments",)
PLACES_SHOWN = 10


class Measure(NamedTuple):
    kind: str
    name: str
    size: float
    limit: float
    where: str  # "path" or "path:line"
    places: tuple = ()  # what to look at, "path:line: ..."

    @property
    def key(self):
        return self.kind, self.name

    def worse_than(self, size):
        return self.size < size if self.kind in AT_LEAST else self.size > size

    @property
    def over(self):
        return self.worse_than(self.limit)

    def line(self):
        return f"{self.kind} {self.name} {self.size:g}"


def rounded(kind, size):
    """To one decimal, never to the better side."""
    round_up = kind not in AT_LEAST
    return (math.ceil if round_up else math.floor)(round(size * 10, 6)) / 10


def recorded(tree):
    """For each line of the ratchet: its number, its key and its size."""
    for number, line in enumerate(tree.read(RATCHET).split("\n"), start=1):
        if line and not line.startswith("#"):
            match = re.fullmatch(r"(\S+) (\S.*) (\d+(?:\.\d)?)", line)
            known = match and match[1] in KINDS
            yield (
                number,
                (match[1], match[2]) if known else None,
                float(match[3]) if known else 0.0,
            )


def _finding(measure, number, size):
    path = measure.where.split(":")[0]
    subject = measure.name
    if subject == path or subject.startswith(path + " "):
        subject = subject[len(path) + 1 :]
    bound = "at least" if measure.kind in AT_LEAST else "at most"
    by = f" by {RATCHET}:{number}" if number else ""
    return (
        f"{measure.where}: {subject}{': ' if subject else ''}"
        f"{measure.size:g} {KINDS[measure.kind]}; {bound} {size:g} "
        f"allowed{by}"
    )


def compare(tree, measures):
    """The findings: what got worse, what is over, what must be written down."""
    allowed = {}
    for number, key, size in recorded(tree):
        if key is None:
            yield f'{RATCHET}:{number}: is not "kind name size"'
        elif key in allowed:
            yield f"{RATCHET}:{number}: stands here twice"
        else:
            allowed[key] = number, size
    for measure in measures:
        number, size = allowed.pop(measure.key, (0, measure.limit))
        if measure.over and measure.worse_than(size):
            yield _finding(measure, number, size)
            yield from (
                f"    {place}" for place in measure.places[:PLACES_SHOWN]
            )
            more = len(measure.places) - PLACES_SHOWN
            if more > 0:
                yield f"    and {more} more; --report lists them"
        elif number and not measure.over:
            yield (
                f"{RATCHET}:{number}: take the line out; {measure.name} "
                "keeps the limit now"
            )
        elif number and measure.size != size:
            yield f'{RATCHET}:{number}: write "{measure.line()}"'
    for (_, name), (number, _) in allowed.items():
        yield f"{RATCHET}:{number}: take the line out; there is no {name}"


def tighten(tree, measures):
    """Writes the ratchet anew: what got better, and nothing that got worse."""
    now = {measure.key: measure for measure in measures}
    keys = {number: (key, size) for number, key, size in recorded(tree)}
    lines = []
    for number, line in enumerate(tree.read(RATCHET).split("\n"), start=1):
        key, size = keys.get(number, (None, 0.0))
        measure = now.get(key)
        if key is None or (measure and measure.worse_than(size)):
            lines.append(line)
        elif measure and measure.over:
            lines.append(measure.line())
    with open(os.path.join(tree.root, RATCHET), "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
