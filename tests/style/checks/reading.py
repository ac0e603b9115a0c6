"""What makes a body hard to read, and what helps: ?: and comments."""

import re

from checks import cxx
from checks.ratchet import Measure, rounded
from checks.tree import HEADER, SOURCE

CONDITIONALS_MAX = 6.0  # in 1,000 lines
COMMENTS_MIN = 5.0  # of 100 lines
ENOUGH_LINES = 1000  # a share of a smaller tree says nothing
REPORT_LINES = 150  # report() looks at longer files only
LICENSE = re.compile(r"copyright|license|SPDX", re.I)


def measure_nested_conditionals(tree):
    places = []
    for path, _ in tree.sources(*SOURCE):
        scan = tree.scan(path)
        places += [
            f"{path}:{scan.line(offset)}: a ?: in a ?:"
            for offset, nested in cxx.conditionals(scan.code)
            if nested
        ]
    yield Measure("nested", "tree", len(places), 0, "tree", places)


def measure_conditionals(tree):
    count = lines = 0
    for path, text in tree.product(".cc"):
        count += len(cxx.conditionals(tree.scan(path).code))
        lines += text.count("\n")
    if lines >= ENOUGH_LINES:
        yield Measure(
            "conditionals",
            "product",
            rounded("conditionals", 1000 * count / lines),
            CONDITIONALS_MAX,
            "product .cc",
        )


def comment_count(text):
    """Lines with a comment alone, without a license at the top."""
    numbers = cxx.comment_lines(text)
    lines = text.split("\n")
    top = 0
    while top < len(numbers) and numbers[top] == top + 1:
        top += 1
    if LICENSE.search("\n".join(lines[:top])):
        return len(numbers) - top
    return len(numbers)


def comment_shares(tree):
    """(path, comment lines, lines) of each .cc of the product."""
    return [
        (path, comment_count(text), text.count("\n"))
        for path, text in tree.product(".cc")
    ]


def measure_comments(tree):
    shares = comment_shares(tree)
    lines = sum(lines for _, _, lines in shares)
    if lines >= ENOUGH_LINES:
        comments = sum(comments for _, comments, _ in shares)
        yield Measure(
            "comments",
            "product",
            rounded("comments", 100 * comments / lines),
            COMMENTS_MIN,
            "product .cc",
        )


def least_commented(tree, count):
    """The longer .cc of the product with the fewest comments, in words."""
    shares = sorted(
        (100 * comments / lines, -lines, path)
        for path, comments, lines in comment_shares(tree)
        if lines > REPORT_LINES
    )
    return [
        f"{path}: {share:.1f} % of {-lines} lines"
        for share, lines, path in shares[:count]
    ]


def measure_invariants(tree):
    """The numbers that a header gives are cited in its .cc.

    A header's own .cc are stem.cc and those stem_more.cc that include it; a
    header without one is left alone.
    """
    places, count = [], 0
    for path, text in tree.sources(*HEADER):
        numbers = re.findall(r"^\s*//\s+I(\d+)[.:] ", text, re.M)
        stem = path[: path.rindex(".")]
        bodies = (
            [
                body
                for other, body in tree.sources(".cc", ".cu")
                if other[: other.rindex(".")] == stem
                or (
                    other.startswith(stem + "_")
                    and f'#include "{path}"' in body
                )
            ]
            if numbers
            else []
        )
        cited = set(
            re.findall(
                r"\bI(\d+)\b",
                "\n".join(cxx.comments_of(body) for body in bodies),
            )
        )
        missing = [
            number for number in dict.fromkeys(numbers) if number not in cited
        ]
        if bodies and missing:
            count += len(missing)
            places.append(f"{path}: " + ", ".join(f"I{n}" for n in missing))
    yield Measure("uncited", "tree", count, 0, "tree", places)
