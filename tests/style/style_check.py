"""Checks what neither clang-format nor clang-tidy can say about the tree.

    style_check.py ROOT

Prints "path:line: what is wrong" and ends with 1 if anything is. Each check is
one function from a Tree to such lines; CHECKS lists them, style_check_test.py
shows that each can fail.
"""

import os
import re
import subprocess
import sys

SOURCE = (".cc", ".h", ".cu", ".cuh")
TEXT = SOURCE + (".proto", ".py", ".sh", ".bzl", ".bazelrc", ".md", "BUILD")
SKIPPED_FOLDERS = (".git", "bazel-", "runs", "dist", "__pycache__")

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
PUBLIC_HEADER = re.compile(r"client/cc/sdk/weir\w*\.h$")
STANDARD_HEADER = re.compile(r"<[a-z_]+>$|<std\w+\.h>$")

HEADER_LINES, SOURCE_LINES, TEST_LINES, COLUMNS = 300, 600, 800, 80
LONG_REASON_WITHIN = 30  # lines

UNTESTED = "tests/style/untested.txt"


class Tree:
    """The files under a root that git keeps, by path."""

    def __init__(self, root):
        self.root = root
        listed = subprocess.run(
            ["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        paths = listed.stdout.decode().split("\n") if listed.returncode == 0 \
            else self._walk()
        self.texts = {}
        for path in sorted(p for p in paths if p.endswith(TEXT)):
            full = os.path.join(root, path)
            if os.path.isfile(full):
                with open(full, encoding="utf-8", errors="replace") as file:
                    self.texts[path] = file.read()

    def _walk(self):
        for folder, folders, names in os.walk(self.root):
            folders[:] = [f for f in folders
                          if not f.startswith(SKIPPED_FOLDERS)]
            for name in names:
                yield os.path.relpath(os.path.join(folder, name), self.root)

    def sources(self, *suffixes):
        """(path, text) of Weir's own files with one of the suffixes."""
        for path, text in self.texts.items():
            if path.endswith(suffixes) and not path.startswith("third_party/"):
                yield path, text


def lines_of(text):
    return enumerate(text.split("\n"), start=1)


def layer_of(path):
    fits = [layer for layer in LAYERS if path.startswith(layer + "/")]
    return max(fits, key=len) if fits else None


def includes(text):
    for number, line in lines_of(text):
        match = re.match(r'\s*#\s*include\s+(["<][^">]+[">])', line)
        if match:
            yield number, match.group(1)


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


def check_sizes(tree):
    for path, text in tree.sources(*SOURCE):
        count = text.count("\n")
        limit = TEST_LINES if path.startswith("tests/") else \
            HEADER_LINES if path.endswith((".h", ".cuh")) else SOURCE_LINES
        first = text.split("\n")[:LONG_REASON_WITHIN]
        if count > limit and not any(
                re.match(r"// Long because \S", line) for line in first):
            yield (f"{path}:{count}: {count} lines; {limit} are allowed, or "
                   "say \"// Long because ...\" at the top")
        for number, line in lines_of(text):
            if len(line) > COLUMNS and "#include" not in line and \
                    "://" not in line and 'R"(' not in line:
                yield f"{path}:{number}: {len(line)} columns"


def check_guards(tree):
    for path, text in tree.sources(".h", ".cuh"):
        guard = re.sub(r"\W", "_", path).upper() + "_"
        wanted = (rf"^#ifndef {guard}\n#define {guard}\n",
                  rf"^#endif  // {guard}\n\Z")
        if not all(re.search(want, text, re.M) for want in wanted):
            yield f"{path}:1: the include guard is not {guard}"


def check_header_comments(tree):
    for path, text in tree.sources(".h", ".cuh", ".proto"):
        if not text.startswith("// "):
            yield f"{path}:1: a header begins with a comment: what it is for"


def check_design_notes(tree):
    notes = tree.texts.get("docs/design_notes.md", "")
    headings = set(re.findall(r"^#+ (.+?)\s*$", notes, re.M))
    citation = re.compile(
        r'[Ss]ee ((?:"[^"]+"(?:, | and )?)+) in\s+docs/design_notes\.md')
    for path, text in tree.sources(*TEXT):
        # A citation may go over a line's end and the next comment mark.
        flat = re.sub(r"[ \t]*\n[ \t]*(?://+|#+|\*)?[ \t]*", " ", text)
        for match in citation.finditer(flat):
            for name in re.findall(r'"([^"]+)"', match.group(1)):
                # These two show the form; they cite nothing.
                if name not in headings and not path.startswith(
                        ("tests/style/", "docs/design_notes.md")):
                    yield (f"{path}:1: no heading \"{name}\" in "
                           "docs/design_notes.md")


def check_leftovers(tree):
    words = re.compile(r"\b(" + "|".join(("FIX" + "ME", "TO" + "DO")) + r")\b")
    for path, text in tree.sources(*TEXT):
        for number, line in lines_of(text):
            if words.search(line):
                yield f"{path}:{number}: finish it, or leave it out"


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
    found = [(kind, text) for kind, text in rules(build) if f'"{name}"' in text]
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
    file = os.path.join(tree.root, UNTESTED)
    text = ""
    if os.path.exists(file):
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
    for number, line in lines_of(text):
        match = with_reason.fullmatch(line)
        if match:
            reasons[match.group(1)] = number
            for named in re.findall(r"tests/[\w/]+\.(?:cc|h)", line):
                if named not in tree.texts:
                    yield f"{UNTESTED}:{number}: there is no {named}"
        elif line and not line.startswith("#"):
            yield f"{UNTESTED}:{number}: is not \"path.cc: reason\""
    for path, _ in tree.sources(".cc"):
        if path.startswith("tests/"):
            continue
        test = "tests/" + path[:-len(".cc")] + "_test.cc"
        kinds = [kind for kind, rule in owners(tree, path)
                 if kind not in ("cc_binary", "cc_test")
                 and "testonly = True" not in rule]
        if test in tree.texts or not kinds:
            if path in reasons and test in tree.texts:
                yield f"{UNTESTED}:{reasons[path]}: {path} has a test now"
        elif path not in reasons:
            yield (f"{path}:1: has no {test}; write it, or a reason into "
                   f"{UNTESTED}")
        reasons.pop(path, None)
    for path, number in reasons.items():
        yield f"{UNTESTED}:{number}: there is no {path}"


def check_failpoints(tree):
    """The names, their description and the places in the product agree."""
    file, header = "common/base/failpoint.cc", "common/base/failpoint.h"
    name = r"[a-z]+\.[a-z_]+"
    known = set(re.findall(rf'^ +"({name})",$', tree.texts.get(file, ""), re.M))
    described = set(re.findall(rf"(?<=[ ,])({name})(?=[, \n])",
                               tree.texts.get(header, "")))
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
    known = {f"{suite}.{test}" for path, text in tree.sources(".cc")
             if path.startswith("tests/") for suite, test in
             re.findall(r"\bTEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", text)}
    for path, text in tree.sources(".md"):
        for number, line in lines_of(text):
            for name in re.findall(r"`(\w+(?:Test|Contract)\.\w+)`", line):
                if name not in known:
                    yield f"{path}:{number}: there is no test {name}"


CHECKS = (check_layers, check_sizes, check_guards, check_header_comments,
          check_design_notes, check_leftovers, check_targets, check_tests,
          check_failpoints, check_named_tests)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    tree = Tree(sys.argv[1])
    if not any(path.endswith(SOURCE) for path in tree.texts):
        sys.exit(f"no sources under {sys.argv[1]}")
    wrong = [line for check in CHECKS for line in check(tree)]
    print("\n".join(wrong) if wrong else f"{len(tree.texts)} files are good")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
