"""Reads C++ well enough to measure it: no preprocessor, no types.

A source is reduced to its code (comments, literals and directives become
blanks or quotes, so that lines and columns stay), then its braces are followed.
A macro that hides a brace, or two branches of an #if that open one brace each,
would confuse it; sizes.check_scans() tells if the tree gets one.
"""

import bisect
import re
from typing import NamedTuple

LEXEME = re.compile(
    r"(?P<directive>^[ \t]*#(?:[^\n]*\\\n)*[^\n]*)"
    r"|(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|(?P<literal>\bu?8?R"(?P<end>[^()\\\s]*)\(.*?\)(?P=end)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])*')",
    re.M | re.S,
)
PARENTHESES = "\x01"  # for "(...)", while they are folded
PAIRS = {")": "(", "]": "[", "}": "{"}


class Function(NamedTuple):
    name: str  # as written: "Class::Method", "TEST(Suite, Name)"
    scope: str  # the class whose body it stands in, or ""
    first: int  # its first line, counted from 1
    brace: int  # the line of the brace that opens its body
    last: int  # the line of the brace that closes it

    @property
    def body_lines(self):
        """Lines after the opening brace's, as clang-tidy counts them."""
        return self.last - self.brace


class Class(NamedTuple):
    name: str
    first: int
    last: int


def code_of(text):
    """`text` with blanks for comments and directives, quotes for literals."""

    def fill(match):
        mark = '"' if match.lastgroup == "literal" or match["literal"] else " "
        return re.sub(r"[^\n]", mark, match[0])

    return LEXEME.sub(fill, text)


def comment_lines(text):
    """Numbers of the lines that hold a comment and nothing else."""
    code = LEXEME.sub(
        lambda m: re.sub(r"[^\n]", " " if m["comment"] else "x", m[0]), text
    )
    return [
        number
        for number, (line, rest) in enumerate(
            zip(text.split("\n"), code.split("\n")), start=1
        )
        if line.strip() and not rest.strip()
    ]


def comments_of(text):
    """The comments of `text`, one after the other."""
    return "\n".join(m[0] for m in LEXEME.finditer(text) if m["comment"])


def _flat(head):
    """`head` without what stands in parentheses and template arguments."""
    head = re.sub(r"\boperator\s*\(\s*\)", "operator_call", head)
    head = re.sub(r"\[\[.*?\]\]", " ", head)
    while True:  # from the innermost parentheses out
        shorter = re.sub(r"\([^()]*\)", PARENTHESES, head)
        shorter = re.sub(r"(?<!operator)<[^<>(){};]*>", "", shorter)
        if shorter == head:
            break
        head = shorter
    head = re.sub(r"^\s*(?:template\s*)+", "", head)
    # A macro that stands alone before a definition.
    head = re.sub(rf"^\s*(?:[A-Z][A-Z_0-9]*{PARENTHESES}\s*)+(?=\w)", "", head)
    return head.replace(PARENTHESES, "()").strip()


# What a function's head may say between its parameters and its body.
TAIL = (
    r"(?:\s*(?:\b(?:const|override|final|mutable)\b|&&?"
    r"|\b(?:noexcept|[A-Z][A-Z_]+)\b(?:\(\))?))*"
    r"(?:\s*->[^(){};]*(?:\(\))?)?\s*"
)
BODY = re.compile(r"\(\)" + TAIL + r"$")
INITIALIZERS = re.compile(r"\(\)" + TAIL + r":(?!:)(?P<list>.*)$", re.S)
CLASS = re.compile(
    r"(?:typedef\s+)?(?:class|struct|union)\b(?:\s+[\w:]+(?:\(\))?)*?"
    r"(?:\s+(?P<name>[\w:]+))?(?:\s+final)?\s*(?::(?!:).*)?$",
    re.S,
)
ACCESS = re.compile(r"\s*(?:(?:public|protected|private)\s*:\s*)*")
NOT_NAMES = ("__launch_bounds__", "__attribute__", "alignas", "decltype")
NAME = re.compile(
    r"((?:[\w~]+\s*::\s*)*(?:operator\s*[^\s\w(]+|"
    r"operator\s+[\w*&]+|~?\w+))\s*\(\)"
)


def _kind(head):
    """What the brace after `head` opens, and its name."""
    if re.search(r"\bnamespace\b[\w:\s]*$", head) or re.search(
        r'\bextern\s+"+\s*$', head
    ):
        return "namespace", ""
    flat = _flat(head)
    initializers = INITIALIZERS.search(flat)
    if not BODY.search(flat) and not initializers:
        opened = CLASS.match(flat)
        return ("class", opened["name"] or "") if opened else ("other", "")
    if initializers and re.search(r"[\w>]$", initializers["list"].strip()):
        return "initializer", ""
    names = [n for n in NAME.findall(flat) if n not in NOT_NAMES]
    name = re.sub(r"\s+", "", names[0]) if names else "lambda"
    if re.match(r"TEST|TYPED_TEST|BENCHMARK", name):
        arguments = re.search(r"\(([^()]*)\)", head)
        name += "(" + re.sub(r"\s+", " ", arguments[1]).strip() + ")"
    return "function", name


class Scan:
    """The functions and outermost classes of a source, in order."""

    def __init__(self, text):
        self.code = code_of(text)
        self.functions, self.classes = [], []
        self.balanced = True
        self._tokens = [
            (m.start(), m[0]) for m in re.finditer(r"[{}();]|\[|\]", self.code)
        ]
        self._partner = self._pair()
        self._starts = [m.start() for m in re.finditer(r"^", self.code, re.M)]
        self._walk()

    def _pair(self):
        partner, open_ones = {}, []
        for index, (_, token) in enumerate(self._tokens):
            if token in "([{":
                open_ones.append(index)
            elif token in PAIRS:
                if (
                    not open_ones
                    or self._tokens[open_ones[-1]][1] != PAIRS[token]
                ):
                    self.balanced = False
                    return {}
                partner[open_ones.pop()] = index
        self.balanced = not open_ones
        return partner

    def line(self, offset):
        return bisect.bisect_right(self._starts, offset)

    def _walk(self):
        if not self.balanced:
            return
        scopes = []  # of namespaces (None) and classes, from outside in
        start, index = 0, 0
        while index < len(self._tokens):
            offset, token = self._tokens[index]
            if token in "([":
                index = self._partner[index]
            elif token == ";":
                start = offset + 1
            elif token == "}":
                scopes.pop()
                start = offset + 1
            elif token == "{":
                start = ACCESS.match(self.code, start).end()
                kind, name = _kind(self.code[start:offset])
                if kind == "namespace":
                    scopes.append(None)
                    start = offset + 1
                elif kind == "class":
                    self._class(scopes, name, start, index)
                    scopes.append(name)
                    start = offset + 1
                else:
                    index = self._partner[index]
                    if kind == "function":
                        self._function(scopes, name, start, offset, index)
                        start = self._tokens[index][0] + 1
            index += 1

    def _class(self, scopes, name, start, index):
        if not any(scopes) and name:
            last = self._tokens[self._partner[index]][0]
            self.classes.append(Class(name, self.line(start), self.line(last)))

    def _function(self, scopes, name, start, offset, close):
        scope = "::".join(name for name in scopes if name)
        self.functions.append(
            Function(
                name,
                scope,
                self.line(start),
                self.line(offset),
                self.line(self._tokens[close][0]),
            )
        )


EXPRESSION = re.compile(
    r"[?;,()\[\]{}]|(?<!:):(?!:)|(?<![=<>!])=(?!=)"
    r"|\breturn\b"
)


class Level:
    """What is known of the expression that is read within one bracket."""

    def __init__(self, inside):
        self.inside = inside  # an operand of a conditional of a level above
        self.restart()

    def restart(self):
        self.open = 0  # "?" whose ":" has not come
        self.done = False  # reading what follows a ":"
        self.held = False  # a bracket before held a "?"


def conditionals(code):
    """(offset, nested) of each "?" of `code`, which code_of() gave.

    It is nested if it stands in an operand of another one, in brackets or not:
    a ? b : c ? d : e, a ? (b ? c : d) : e, (a ? b : c) ? d : e.
    """
    levels, found = [Level(False)], []
    seen = [0]  # how many were found when each level began
    for match in EXPRESSION.finditer(code):
        token, level = match[0], levels[-1]
        if token in "([{":
            levels.append(Level(level.inside or level.open > 0 or level.done))
            seen.append(len(found))
        elif token in ")]}":
            held = len(found) > seen.pop()
            levels.pop()
            if not levels:
                return found  # unbalanced
            if token != "}":
                levels[-1].held |= held
        elif token == "?":
            found.append(
                (
                    match.start(),
                    level.inside or level.open > 0 or level.done or level.held,
                )
            )
            level.open += 1
        elif token == ":" and level.open:
            level.open -= 1
            level.done = True
        elif not level.open or token == ";":
            level.restart()  # a separator, or a label's colon
    return found
