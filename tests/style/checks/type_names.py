"""No two types have one name in one namespace.

The linker takes one of two inline functions of the same name, a destructor for
example, and says nothing: a program that has both types in it then runs the
other type's.
"""

import collections
import re

from checks.tree import SOURCE

OPENS = re.compile(r"(?:inline )?namespace( [\w:]+)? ?\{")
CLOSES = re.compile(r"\}  // namespace")
# At the margin, as clang-format puts what is in no other type or function.
TYPE = re.compile(
    r"(?:class|struct|enum class|enum) (\w+)(?: final)?(?: :[^:]| ?\{|$)"
)
MESSAGE = re.compile(r"(?:message|enum) (\w+)")


def types_of(path, text):
    """(line, namespace and name) of each type of a file."""
    namespaces = []
    if path.endswith(".proto"):
        package = re.search(r"^package ([\w.]+);", text, re.M)
        namespaces = package[1].split(".") if package else []
    for number, line in enumerate(text.split("\n"), start=1):
        if path.endswith(".proto"):
            found = MESSAGE.match(line)
        elif opened := OPENS.match(line):
            # What has no name is the file's own.
            namespaces.append((opened[1] or path).strip())
            continue
        elif CLOSES.match(line):
            del namespaces[-1:]
            continue
        else:
            found = TYPE.match(line)
        if found:
            yield number, "::".join([*namespaces, found[1]])


def check_type_names(tree):
    places = collections.defaultdict(dict)
    for path, text in tree.sources(*SOURCE, ".proto"):
        for number, name in types_of(path, text):
            places[name].setdefault(path, number)
    for name, files in sorted(places.items()):
        first, *others = sorted(files.items())
        for path, number in others:
            yield (
                f"{path}:{number}: {name} is also a type of {first[0]}: give "
                "it a name of its own"
            )
