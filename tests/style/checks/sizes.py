"""How long a file, a class and a function may be."""

import ast
import os

from checks.ratchet import Measure
from checks.tree import HEADER, SOURCE

HEADER_LINES, SOURCE_LINES, TEST_LINES = 300, 500, 800
CLASS_LINES, FUNCTION_LINES = 800, 70


def measure_files(tree):
    for path, text in tree.sources(*SOURCE):
        limit = (
            TEST_LINES
            if path.startswith("tests/")
            else HEADER_LINES
            if path.endswith(HEADER)
            else SOURCE_LINES
        )
        yield Measure("lines", path, text.count("\n"), limit, path)


def check_scans(tree):
    """What follows the braces cannot measure a file that confuses it."""
    for path, _ in tree.sources(*SOURCE):
        if not tree.scan(path).balanced:
            yield f"{path}:1: the style check finds no pair for some bracket"


def measure_classes(tree):
    """An outermost class: its body, and its members' definitions anywhere.

    Definitions are counted from their first line to their closing brace,
    without the comments and blank lines between them. Where several classes
    have one name, a definition belongs to the one whose path is the nearest.
    """
    bodies, sizes = {}, {}
    for path, _ in tree.sources(*SOURCE):
        for body in tree.scan(path).classes:
            bodies.setdefault(body.name, []).append(path)
            key = path, body.name
            sizes.setdefault(key, []).append((path, body.last - body.first + 1))
    for path, _ in tree.sources(*SOURCE):
        for function in tree.scan(path).functions:
            owner = next(
                (
                    name
                    for name in function.name.split("::")[:-1]
                    if name in bodies
                ),
                None,
            )
            if owner and not function.scope:
                nearest = max(
                    bodies[owner],
                    key=lambda body: (
                        body == path,
                        len(os.path.commonpath([body, path])),
                    ),
                )
                sizes[nearest, owner].append(
                    (path, function.last - function.first + 1)
                )
    for (path, name), parts in sizes.items():
        files = sorted({part for part, _ in parts})
        places = [
            f"{file}: {sum(n for part, n in parts if part == file)}"
            for file in files
        ]
        yield Measure(
            "class",
            f"{path} {name}",
            sum(n for _, n in parts),
            CLASS_LINES,
            path,
            places,
        )


def _functions(path, found):
    """One measure a name: the longest of those that share it."""
    longest = {}
    for name, first, last in found:
        size = last - first + 1
        if size > longest.get(name, (0, 0))[0]:
            longest[name] = size, first
    for name, (size, first) in longest.items():
        yield Measure(
            "function",
            f"{path} {name}",
            size,
            FUNCTION_LINES,
            f"{path}:{first}",
        )


def measure_functions(tree):
    """From the first line of the head to the closing brace."""
    for path, _ in tree.sources(*SOURCE):
        yield from _functions(
            path,
            (
                (
                    "::".join(part for part in (f.scope, f.name) if part),
                    f.first,
                    f.last,
                )
                for f in tree.scan(path).functions
            ),
        )


def measure_python_functions(tree):
    for path, text in tree.sources(".py"):
        yield from _functions(
            path,
            (
                (node.name, node.lineno, node.end_lineno)
                for node in ast.walk(ast.parse(text))
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            ),
        )
