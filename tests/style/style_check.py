"""Checks what neither clang-format nor clang-tidy can say about the tree.

    style_check.py ROOT            prints "path:line: what is wrong" and ends
                                   with 1 if anything is
    style_check.py ROOT --tighten  takes what got better over into ratchet.txt
    style_check.py ROOT --report   prints all that is over its limit today

CHECKS are functions from a Tree to findings, MEASURES functions from a Tree to
sizes that have a limit; checks/ratchet.py says what may be over it.
style_check_test.py shows that each can fail.
"""

import sys

from checks import (
    form,
    glossary,
    layers,
    ratchet,
    reading,
    sizes,
    system_includes,
    targets,
    type_names,
)
from checks.tree import SOURCE, Tree

MEASURES = (
    sizes.measure_files,
    sizes.measure_classes,
    sizes.measure_functions,
    sizes.measure_python_functions,
    layers.measure_folders,
    layers.measure_rooms,
    reading.measure_nested_conditionals,
    reading.measure_conditionals,
    reading.measure_comments,
    reading.measure_invariants,
    glossary.measure_old_words,
)


def measures(tree):
    return [measured for measure in MEASURES for measured in measure(tree)]


def check_measures(tree):
    return ratchet.compare(tree, measures(tree))


CHECKS = (
    layers.check_layers,
    layers.check_room_table,
    layers.check_seams,
    system_includes.check_system_includes,
    type_names.check_type_names,
    form.check_columns,
    form.check_guards,
    form.check_header_comments,
    form.check_design_notes,
    form.check_leftovers,
    targets.check_targets,
    targets.check_tests,
    targets.check_failpoints,
    targets.check_named_tests,
    sizes.check_scans,
    glossary.check_terms,
    glossary.check_old_words_are_readable,
    check_measures,
)


def report(tree):
    """All that is over a limit, the worst of each kind first."""
    over = [measure for measure in measures(tree) if measure.over]
    for kind, unit in ratchet.KINDS.items():
        of_kind = sorted(
            (m for m in over if m.kind == kind), key=lambda m: -m.size
        )
        if of_kind:
            print(f"\n{kind} ({unit}): {len(of_kind)} over the limit")
        for measure in of_kind:
            print(f"  {measure.size:g}  {measure.name}")
            for place in measure.places:
                print(f"      {place}")
    print("\nthe longer .cc with the fewest comments:")
    print("".join(f"  {line}\n" for line in reading.least_commented(tree, 10)))


def main():
    mode = sys.argv[2] if len(sys.argv) == 3 else ""
    if len(sys.argv) not in (2, 3) or mode not in ("", "--tighten", "--report"):
        sys.exit(__doc__)
    tree = Tree(sys.argv[1])
    if not any(path.endswith(SOURCE) for path in tree.texts):
        sys.exit(f"no sources under {sys.argv[1]}")
    if mode == "--report":
        return report(tree)
    if mode == "--tighten":
        ratchet.tighten(tree, measures(tree))
    wrong = [line for check in CHECKS for line in check(tree)]
    print("\n".join(wrong) if wrong else f"{len(tree.texts)} files are good")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
