"""The form of a file: columns, guards, its first line, what it cites."""

import re

from checks.tree import HEADER, SOURCE, TEXT, lines_of

COLUMNS = 80


def check_columns(tree):
    for path, text in tree.sources(*SOURCE):
        for number, line in lines_of(text):
            if (
                len(line) > COLUMNS
                and "#include" not in line
                and "://" not in line
                and 'R"(' not in line
            ):
                yield f"{path}:{number}: {len(line)} columns"


def check_guards(tree):
    for path, text in tree.sources(*HEADER):
        guard = re.sub(r"\W", "_", path).upper() + "_"
        wanted = (
            rf"^#ifndef {guard}\n#define {guard}\n",
            rf"^#endif  // {guard}\n\Z",
        )
        if not all(re.search(want, text, re.M) for want in wanted):
            yield f"{path}:1: the include guard is not {guard}"


def check_header_comments(tree):
    for path, text in tree.sources(*HEADER, ".proto"):
        if not text.startswith("// "):
            yield f"{path}:1: a header begins with a comment: what it is for"


def check_design_notes(tree):
    notes = tree.texts.get("docs/design_notes.md", "")
    headings = set(re.findall(r"^#+ (.+?)\s*$", notes, re.M))
    citation = re.compile(
        r'[Ss]ee ((?:"[^"]+"(?:, | and )?)+) in\s+docs/design_notes\.md'
    )
    for path, text in tree.sources(*TEXT):
        # A citation may go over a line's end and the next comment mark.
        flat = re.sub(r"[ \t]*\n[ \t]*(?://+|#+|\*)?[ \t]*", " ", text)
        for match in citation.finditer(flat):
            for name in re.findall(r'"([^"]+)"', match.group(1)):
                # These two show the form; they cite nothing.
                if name not in headings and not path.startswith(
                    ("tests/style/", "docs/design_notes.md")
                ):
                    yield (
                        f'{path}:1: no heading "{name}" in docs/design_notes.md'
                    )


def check_leftovers(tree):
    words = re.compile(r"\b(" + "|".join(("FIX" + "ME", "TO" + "DO")) + r")\b")
    for path, text in tree.sources(*TEXT):
        for number, line in lines_of(text):
            if words.search(line):
                yield f"{path}:{number}: finish it, or leave it out"
