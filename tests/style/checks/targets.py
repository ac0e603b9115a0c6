"""Every source is in a target and has a test; what is named exists."""

import os
import re

from checks.tree import SOURCE, lines_of

UNTESTED = "tests/style/untested.txt"


def rules(build_text):
    """(kind, text) of each rule of a BUILD file."""
    return re.findall(r"^(\w+)\(\n(.*?)^\)", build_text, re.M | re.S)


def owners(tree, path):
    """The rules that name `path`, in the BUILD file nearest above it."""
    folder = os.path.dirname(path)
    while folder and folder + "/BUILD" not in tree.texts:
        folder = os.path.dirname(folder)
    build = tree.texts.get(os.path.join(folder, "BUILD"), "")
    name = os.path.relpath(path, folder or ".")
    stem, suffix = os.path.splitext(name)
    found = [
        (kind, text)
        for kind, text in rules(build)
        if f'"{name}"' in text
        or (
            kind in ("fuzz_target", "weir_test")
            and suffix == ".cc"
            and f'name = "{stem}"' in text
        )
    ]
    # [cc_test(name = name, srcs = [name + ".cc"]) for name in ["stem", ...]]
    if not found and f'"{stem}"' in build and f'+ "{suffix}"' in build:
        found = [("cc_test", build)]
    return found


def check_targets(tree):
    for path, _ in tree.sources(*SOURCE, ".proto"):
        if not owners(tree, path):
            yield f"{path}:1: is in no target of its folder's BUILD"


def check_tests(tree):
    reasons = {}
    with_reason = re.compile(r"(\S+\.cc): \S.*")
    for number, line in lines_of(tree.read(UNTESTED)):
        match = with_reason.fullmatch(line)
        if match:
            reasons[match.group(1)] = number
            for named in re.findall(r"tests/[\w/]+\.(?:cc|h)", line):
                if named not in tree.texts:
                    yield f"{UNTESTED}:{number}: there is no {named}"
        elif line and not line.startswith("#"):
            yield f'{UNTESTED}:{number}: is not "path.cc: reason"'
    for path, _ in tree.sources(".cc"):
        if path.startswith("tests/"):
            continue
        test = "tests/" + path[: -len(".cc")] + "_test.cc"
        kinds = [
            kind
            for kind, rule in owners(tree, path)
            if kind not in ("cc_binary", "cc_test", "weir_test")
            and "testonly = True" not in rule
        ]
        if test in tree.texts or not kinds:
            if path in reasons and test in tree.texts:
                yield f"{UNTESTED}:{reasons[path]}: {path} has a test now"
        elif path not in reasons:
            yield (
                f"{path}:1: has no {test}; write it, or a reason into "
                f"{UNTESTED}"
            )
        reasons.pop(path, None)
    for path, number in reasons.items():
        yield f"{UNTESTED}:{number}: there is no {path}"


def check_failpoints(tree):
    """The names, their description and the places in the product agree."""
    folder = (
        "common/base" if "common/base/failpoint.h" in tree.texts else "common"
    )
    file, header = f"{folder}/failpoint.cc", f"{folder}/failpoint.h"
    name = r"[a-z]+\.[a-z_]+"
    known = set(re.findall(rf'^ +"({name})",$', tree.texts.get(file, ""), re.M))
    described = set(
        re.findall(rf"(?<=[ ,])({name})(?=[, \n])", tree.texts.get(header, ""))
    )
    placed = set()
    for path, text in tree.sources(*SOURCE):
        if path.startswith("tests/") or path == header:
            continue
        for number, line in lines_of(text):
            for place in re.findall(r'\bFailpoint\("([^"]+)"\)', line):
                placed.add(place)
                if place not in known:
                    yield f"{path}:{number}: {file} does not know {place}"
    for place in sorted(known - placed):
        yield f"{file}:1: no place in the product is called {place}"
    for place in sorted(known - described):
        yield f"{header}:1: does not describe {place}"
    for place in sorted(described - known):
        yield f"{header}:1: describes {place}, which {file} does not know"


def check_named_tests(tree):
    """The tests that the documents name exist."""
    known = {
        f"{suite}.{test}"
        for path, text in tree.sources(".cc")
        if path.startswith("tests/")
        for suite, test in re.findall(
            r"\bTEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", text
        )
    }
    for path, text in tree.sources(".md"):
        for number, line in lines_of(text):
            for name in re.findall(r"`(\w+(?:Test|Contract)\.\w+)`", line):
                if name not in known:
                    yield f"{path}:{number}: there is no test {name}"
