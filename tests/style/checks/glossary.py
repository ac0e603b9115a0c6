"""docs/glossary.md defines a word once; the words it replaces are gone."""

import itertools
import re

from checks.ratchet import Measure
from checks.tree import TEXT, lines_of

GLOSSARY = "docs/glossary.md"
MAY_NAME_OLD_WORDS = (GLOSSARY, "CHANGELOG.md")
SECTION = "Words that are not used"
PATTERN = re.compile(r"[\\\[\](){}|^$*+?]")  # what makes an entry a pattern
ENTRY = re.compile(r"\s*[-*] (.*?)(?:->|→)")


def _parts(tree):
    """(number, line, whether it is in SECTION) of the glossary's lines."""
    level = 0
    for number, line in lines_of(tree.texts.get(GLOSSARY, "")):
        heading = re.match(r"(#+) (.*?)\s*$", line)
        if heading and (not level or len(heading[1]) <= level):
            level = len(heading[1]) if heading[2] == SECTION else 0
        yield number, line, level > 0 and not heading


def check_terms(tree):
    """A term is `- **term**: ...`, `**term**: ...` or a table's first cell."""
    first = {}
    lines = list(_parts(tree))
    for (number, line, old), (_, after, _) in itertools.pairwise(lines):
        cell = re.match(r"\|\s*([^|]+?)\s*\|", line)
        if cell and (
            re.match(r"\|[\s:|-]+$", line) or re.match(r"\|[\s:|-]+$", after)
        ):
            continue  # a table's head, or the line under it
        bold = re.match(r"(?:[-*] )?\*\*(.+?)\*\*", line)
        if old or not (cell or bold):
            continue
        for term in re.split(r", | / ", (cell or bold)[1].strip("*:` ")):
            term = term.strip("*:` ").lower()
            if term in first:
                yield (
                    f"{GLOSSARY}:{number}: defines {term} again; line "
                    f"{first[term]} does"
                )
            first.setdefault(term, number)


def _old_words(tree):
    """(line of the glossary, word or pattern) of each entry of SECTION."""
    for number, line, old in _parts(tree):
        if old and re.match(r"\s*[-*] ", line):
            entry = ENTRY.match(line)
            words = re.findall(r"`([^`]+)`", entry[1]) if entry else []
            yield from ((number, word) for word in words or [None])


def _expression(word):
    """The regular expression of an old word, and a text that every hit has."""
    if PATTERN.search(word):
        literal = (
            []
            if "|" in word
            else re.findall(r"(?<![\\\w\[])\w{3,}(?![\w?*{\]-])", word)
        )
        return word, max(literal, key=len, default="")
    # A blank may be a line's end and the next line's comment mark.
    gap = r"\s+(?:(?://+|#+|\*)\s*)?"
    body = gap.join(re.escape(part) for part in word.split())
    if word[0].islower():  # as the first word of a sentence, too
        body = f"[{word[0].upper()}{word[0]}]" + body[1:]
    return rf"(?<!\w){body}(?!\w)", word.split()[0][1:]


def check_old_words_are_readable(tree):
    for number, word in _old_words(tree):
        if word is None:
            yield f'{GLOSSARY}:{number}: is not "- `old` -> new"'
            continue
        try:
            re.compile(_expression(word)[0])
        except re.error as error:
            yield f"{GLOSSARY}:{number}: {word} is no pattern: {error}"


def measure_old_words(tree):
    """Plain entries are whole words; those with a pattern match anywhere."""
    for word in dict.fromkeys(word for _, word in _old_words(tree) if word):
        text_of_all, literal = _expression(word)
        try:
            pattern = re.compile(text_of_all)
        except re.error:
            continue  # check_old_words_are_readable() tells
        places = []
        for path, text in tree.sources(*TEXT):
            if path not in MAY_NAME_OLD_WORDS and literal in text:
                places += [
                    f"{path}:{text.count(chr(10), 0, match.start()) + 1}: "
                    + " ".join(match[0].split())
                    for match in pattern.finditer(text)
                ]
        yield Measure("old-word", word, len(places), 0, GLOSSARY, places)
