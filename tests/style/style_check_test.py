"""Shows that every check of style_check.py can fail, and passes a good tree."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import style_check
from checks import cxx, layers, ratchet, system_includes
from checks.tree import Tree

A_CC, A_H = "common/io/a.cc", "common/io/a.h"
BINARY = 'cc_binary(\n    srcs = ["a.cc"],\n)\n'
GUARD = "#ifndef {0}\n#define {0}\n{1}#endif  // {0}\n"


def header(path, body=""):
    guard = path.replace("/", "_").replace(".", "_").upper() + "_"
    return "// What it is for.\n" + GUARD.format(guard, body)


def good_tree():
    return {
        "docs/design_notes.md": "# Notes\n\n## Push identity\n\nText.\n",
        "common/io/BUILD": 'cc_library(\n    name = "a",\n    srcs = ["a.cc"],\n'
        '    hdrs = ["a.h"],\n)\n',
        A_H: header(
            "common/io/a.h",
            '// See "Push identity" in\n// docs/design_notes.md.\n',
        ),
        A_CC: '#include "common/io/a.h"\n',
        "tests/common/io/BUILD": 'cc_test(\n    name = "a_test",\n    srcs = ["a_test.cc"],\n)\n',
        "tests/common/io/a_test.cc": '#include "common/io/a.h"\n',
        "client/cc/BUILD": 'cc_library(\n    name = "weir",\n'
        '    hdrs = ["weir.h"],\n)\n',
        "client/cc/weir.h": header("client/cc/weir.h", "#include <string>\n"),
        "worker/BUILD": 'cc_binary(\n    name = "w",\n'
        '    srcs = ["worker_main.cc"],\n)\n',
        "worker/worker_main.cc": '#include "server/chief/chief.h"\n',
        "tests/style/untested.txt": "# path: reason\n",
    }


def write(root, tree):
    for path, text in tree.items():
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)


def findings(tree):
    with tempfile.TemporaryDirectory() as root:
        write(root, tree)
        loaded = Tree(root)
        return [line for check in style_check.CHECKS for line in check(loaded)]


def measured(kind, tree):
    """{name: size} of a kind of measure."""
    with tempfile.TemporaryDirectory() as root:
        write(root, tree)
        return {
            measure.name: measure.size
            for measure in style_check.measures(Tree(root))
            if measure.kind == kind
        }


class StyleCheckTest(unittest.TestCase):
    def expect(self, path, text, *wants):
        """The good tree with one file changed gives these findings."""
        tree = good_tree()
        tree[path] = text
        found = findings(tree)
        self.assertEqual(len(found), len(wants), found)
        for line, want in zip(found, wants):
            self.assertIn(want, line)

    def test_a_good_tree_passes(self):
        self.assertEqual(findings(good_tree()), [])

    def test_layers_point_one_way(self):
        include = '#include "common/io/a.h"\n#include "{}"\n'
        cases = (
            ("common/io/a.cc", "proto/x.h", "common may not include"),
            ("common/io/a.cc", "client/cc/x.h", "common may not include"),
            ("common/io/a.cc", "worker/x.h", "common may not include"),
            ("worker/worker_main.cc", "server/ps/x.h", "worker may not"),
        )
        for path, target, want in cases:
            self.expect(path, include.format(target), want)

    def test_every_forbidden_pair_of_layers_is_refused(self):
        names = [
            name for name, below in layers.LAYERS.items() if below is not None
        ]
        for here in names:
            for there in names:
                allowed = there == here or there in layers.LAYERS[here]
                rooms = {"common": "common/io"}
                folder = rooms.get(here, here)
                include = f'#include "{rooms.get(there, there)}/b.h"\n'
                tree = {f"{folder}/a.cc": include, f"{folder}/BUILD": BINARY}
                self.assertEqual(findings(tree) == [], allowed, (here, there))

    def test_rooms_point_down(self):
        include = '#include "server/ps/{}/b.h"\n'

        def refused(here, there):
            return findings(
                {
                    f"server/ps/{here}/a.cc": include.format(there),
                    f"server/ps/{here}/BUILD": BINARY,
                }
            )

        rooms = [room for room in layers.ROOMS["server/ps"] if room]
        for here in rooms:
            for there in rooms:
                allowed = (
                    here == there or there in layers.ROOMS["server/ps"][here]
                )
                self.assertEqual(
                    refused(here, there) == [], allowed, (here, there)
                )
        self.assertEqual(
            refused("block", "store"),
            [
                "server/ps: server/ps/block -> server/ps/store: 1 includes that "
                "ROOMS in layers.py does not allow; at most 0 allowed",
                '    server/ps/block/a.cc:1: includes "server/ps/store/b.h"',
            ],
        )

    def test_every_room_is_in_the_table(self):
        tree = {"server/ps/attic/a.cc": "\n", "server/ps/attic/BUILD": BINARY}
        self.assertIn("1 sources in a room that ROOMS", findings(tree)[0])

    def test_the_table_of_rooms_goes_down_and_is_needed(self):
        table = layers.ROOMS["proto"]
        tree = {
            "proto/wire/a.cc": '#include "proto/job/b.h"\n',
            "proto/wire/BUILD": BINARY,
            "proto/job/a.cc": "\n",
            "proto/job/BUILD": BINARY,
        }
        self.assertEqual(findings(tree), [])
        tree["proto/wire/a.cc"] = "\n"
        self.assertEqual(
            findings(tree),
            ["ROOMS in layers.py: nothing needs proto/wire -> proto/job"],
        )
        layers.ROOMS["proto"] = {**table, "job": ("wire",)}
        try:
            self.assertIn(
                "proto/job -> proto/wire does not go down", findings(tree)[1]
            )
        finally:
            layers.ROOMS["proto"] = table

    def test_rooms_and_arrows_are_counted(self):
        tree = {}
        for n in range(9):
            tree[f"client/cc/r{n}/BUILD"] = BINARY
            tree[f"client/cc/r{n}/a.cc"] = "".join(
                f'#include "client/cc/r{m}/a.h"\n' for m in range(n)
            )
        found = "\n".join(findings(tree))
        self.assertIn("client/cc: 9 rooms; at most 8 allowed", found)
        self.assertIn(
            "client/cc: 36 arrows between its rooms; at most 12", found
        )

    def test_the_ps_and_the_client_never_meet(self):
        for here, there in (
            ("server/ps", "client/cc"),
            ("client/cc", "server/ps"),
        ):
            tree = {
                f"{here}/a.cc": f'#include "{there}/b.h"\n',
                f"{here}/BUILD": BINARY,
            }
            self.assertIn("may not include", findings(tree)[0])

    def test_only_worker_main_may_host_the_chief(self):
        tree = good_tree()
        tree["worker/BUILD"] += '\ncc_binary(\n    srcs = ["b.cc"],\n)\n'
        tree["worker/b.cc"] = '#include "server/chief/chief.h"\n'
        self.assertEqual(len(findings(tree)), 1)

    def test_common_knows_no_protobuf_grpc_or_cuda(self):
        for target in (
            "google/protobuf/message.h",
            "grpcpp/grpcpp.h",
            "grpc/grpc.h",
            "x.pb.h",
            "cuda_runtime.h",
            "cudnn.h",
        ):
            self.expect(A_CC, f"#include <{target}>\n", "may not know")

    def test_threads_and_time_come_from_their_seams(self):
        names = ("chrono", "mutex", "random", "thread")
        headers = "".join(f"#include <{name}>\n" for name in names)
        for line in (
            "std::thread thread(Run);",
            "std::mutex mutex;",
            "std::this_thread::sleep_for(time);",
            "const auto now = std::chrono::steady_clock::now();",
            "std::random_device random;",
        ):
            self.expect(A_CC, f"{headers}{line}\n", "take Weir's own")
        self.expect(A_CC, "// Not std::mutex, which blocks.\n")

    def test_public_headers_name_the_standard_library_only(self):
        for target in ('"absl/status/status.h"', '"common/io/a.h"', "<grpc.h>"):
            self.expect(
                "client/cc/weir.h",
                header("client/cc/weir.h", f"#include {target}\n"),
                "a public header includes",
            )

    def test_what_compilers_read_before_a_source_is_included(self):
        use = '#include "common/io/a.h"\n{}std::vector<int> a;\n'
        self.expect(A_CC, use.format(""), "a.cc:2: std::vector needs <vector>")
        self.expect(A_CC, use.format("#include <vector>\n"))
        self.expect(A_CC, "// std::vector\n#include <map>\n")
        # By a header of the tree, through another one.
        tree = good_tree()
        tree[A_H] = header(A_H, '#include "common/io/b.h"\n')
        tree["common/io/b.h"] = header("common/io/b.h", "#include <vector>\n")
        tree["common/io/BUILD"] += 'cc_library(\n    hdrs = ["b.h"],\n)\n'
        tree[A_CC] = use.format("")
        self.assertEqual(findings(tree), [])

    def test_every_header_that_is_read_before_is_known(self):
        tree = good_tree()
        tree[system_includes.LIST] = "# Why.\nvector\nlist\n"
        (found,) = findings(tree)
        self.assertIn("headers.txt:3: say in", found)

    def test_types_have_names_of_their_own(self):
        inside = "namespace {}{{\n{}\n}}  // namespace\n"
        tree = good_tree()
        tree["proto/a.proto"] = "// A.\npackage weir;\nmessage A {\n}\n"
        tree["proto/BUILD"] = 'proto_library(\n    srcs = ["a.proto"],\n)\n'
        for namespace, type_of, wrong in (
            ("weir ", "struct A {};", True),
            ("weir ", "class A final : public B {\n};", True),
            ("weir ", "class A;", False),
            ("weir ", "struct A::B {};", False),
            ("weir ", "struct Ab {};", False),
            ("weir::sdk ", "struct A {};", False),
            ("", "struct A {};", False),
        ):
            text = inside.format(namespace, type_of)
            tree[A_CC] = f'#include "common/io/a.h"\n{text}'
            with self.subTest(type_of, namespace=namespace):
                self.assertEqual(
                    findings(tree),
                    [
                        "proto/a.proto:3: weir::A is also a type of common/io/a.cc: "
                        "give it a name of its own"
                    ]
                    if wrong
                    else [],
                )

    def test_sizes_are_bounded(self):
        body = "// x\n" * 300
        self.expect(A_H, header(A_H, body), "304 lines")
        self.expect(A_CC, "// x\n" * 501, "501 lines")
        self.expect("tests/common/io/a_test.cc", "// x\n" * 801, "801 lines")
        self.expect(
            A_CC,
            "// Long because it is a table.\n" + "// x\n" * 501,
            "502 lines",
        )
        self.expect(A_CC, "// " + "x" * 78 + "\n", "81 columns")

    def test_a_class_is_measured_over_all_its_files(self):
        tree = good_tree()
        tree[A_H] = header(
            "common/io/a.h", "class A {\n" + "  int x;\n" * 99 + "};\n"
        )
        method = "void A::F{}() {{\n" + "  x();\n" * 58 + "}}\n"
        for half in ("a.cc", "a_more.cc"):
            tree[f"common/io/{half}"] = (
                "".join(method.format(n) for n in range(6)) + "void Free() {}\n"
            )
        tree["common/io/BUILD"] = tree["common/io/BUILD"].replace(
            '"a.cc"', '"a.cc", "a_more.cc"'
        )
        tree["tests/style/untested.txt"] = "common/io/a_more.cc: is a\n"
        self.assertEqual(
            measured("class", tree), {"common/io/a.h A": 101 + 2 * 6 * 60}
        )
        self.assertEqual(
            findings(tree)[0].split(";")[0],
            "common/io/a.h: A: 821 lines of its body and of its "
            "members' definitions",
        )

    def test_functions_are_bounded(self):
        body = "  x();\n"
        self.expect(A_CC, "void F(\n    int) {\n" + body * 67 + "}\n")
        self.expect(
            A_CC,
            "void F(\n    int) {\n" + body * 68 + "}\n",
            "common/io/a.cc:1: F: 71 lines",
        )
        self.expect(
            A_H,
            header(
                "common/io/a.h",
                "struct A {\n  void F() {\n" + body * 69 + "  }\n};\n",
            ),
            "common/io/a.h:5: A::F: 71 lines",
        )
        self.expect("a.py", "\n\ndef f():\n" + "    g()\n" * 69)
        self.expect(
            "a.py", "\n\ndef f():\n" + "    g()\n" * 70, "a.py:3: f: 71 lines"
        )

    def test_folders_hold_few_headers(self):
        tree = good_tree()
        for n in range(16):
            tree[f"common/io/b{n}.h"] = header(f"common/io/b{n}.h")
        tree["common/io/BUILD"] += (
            "cc_library(\n    hdrs = ["
            + "".join(f'"b{n}.h", ' for n in range(16))
            + "],\n)\n"
        )
        self.assertEqual(
            findings(tree), ["common/io: 17 headers; at most 16 allowed"]
        )

    def test_guards_match_paths(self):
        want = "is not COMMON_IO_A_H_"
        self.expect(A_H, header("common/io/b.h"), want)
        self.expect(A_H, "// x\n#pragma once\n", want)

    def test_headers_begin_with_a_comment(self):
        self.expect(A_H, header(A_H).split("\n", 1)[1], "begins with a comment")

    def test_design_notes_resolve(self):
        self.expect(
            A_CC,
            '// See "Push identity" and "No such" in\n'
            "// docs/design_notes.md.\n",
            '"No such"',
        )
        self.expect("docs/design_notes.md", "# Notes\n", '"Push identity"')

    def test_nothing_is_left_to_do(self):
        for word in ("TO" + "DO", "FIX" + "ME"):
            self.expect(A_CC, f"// {word}: later\n", "finish it")

    def test_failpoints_have_a_name_a_place_and_a_description(self):
        tree = good_tree()
        tree["common/base/BUILD"] = (
            'cc_library(\n    name = "failpoint",\n'
            '    srcs = ["failpoint.cc"],\n    hdrs = ["failpoint.h"],\n)\n'
        )
        tree["tests/common/base/failpoint_test.cc"] = '  Failpoint("test.a");\n'
        tree["tests/common/base/BUILD"] = (
            'cc_test(\n    name = "f",\n    srcs = ["failpoint_test.cc"],\n)\n'
        )
        words = "//   a.one, a.two  here\n//   a.three\n"
        name = "common/base/failpoint.h"
        tree[A_CC] += f'#include "{name}"\n'
        tree[name] = words + header(name)
        names = '    "a.one",\n    "a.two",\n    "a.three",\n'
        tree["common/base/failpoint.cc"] = names
        places = '  Failpoint("a.one");\n  return Failpoint("a.two");\n'
        tree["worker/worker_main.cc"] = places + '  Failpoint("a.three");\n'
        self.assertEqual(findings(tree), [])
        for path, text, wants in (
            ("worker/worker_main.cc", places, ["is called a.three"]),
            (
                "common/base/failpoint.cc",
                '    "a.one",\n    "a.two",\n',
                ["does not know a.three", "describes a.three, which"],
            ),
            (
                name,
                header(name),
                [f"does not describe a.{n}" for n in ("one", "three", "two")],
            ),
        ):
            found = findings({**tree, path: text})
            self.assertEqual(len(found), len(wants), found)
            for line, want in zip(found, wants):
                self.assertIn(want, line)

    def test_documents_name_tests_that_exist(self):
        tree = good_tree()
        tree["tests/common/io/a_test.cc"] = "TEST(ATest,\n     Adds) {\n}\n"
        tree["docs/a.md"] = "`ATest.Adds` shows it.\n"
        self.assertEqual(findings(tree), [])
        tree["docs/a.md"] += "So does `ATest.Takes`.\n"
        self.assertEqual(
            findings(tree), ["docs/a.md:2: there is no test ATest.Takes"]
        )

    def test_every_source_is_in_a_target(self):
        tree = good_tree()
        tree["common/io/b.h"] = header("common/io/b.h")
        tree["common/io/b.cc"] = "\n"
        tree["common/io/b.proto"] = "// x\n"
        self.assertEqual(
            [line.split(":")[0] for line in findings(tree)],
            [f"common/io/b.{e}" for e in ("cc", "h", "proto")],
        )
        tree = good_tree()
        tree["tests/fuzz/b_fuzz.cc"] = "\n"
        tree["tests/fuzz/BUILD"] = 'fuzz_target(\n    name = "b_fuzz",\n)\n'
        self.assertEqual(findings(tree), [])

    def test_every_library_source_has_its_test_or_a_reason(self):
        tree = good_tree()
        del tree["tests/common/io/a_test.cc"]
        tree["tests/common/io/BUILD"] = "\n"
        self.assertIn("has no tests/common/io/a_test.cc", findings(tree)[0])
        tree["tests/style/untested.txt"] = "common/io/a.cc: only forwards\n"
        self.assertEqual(findings(tree), [])

    def test_the_list_of_untested_sources_is_kept(self):
        untested = "tests/style/untested.txt"
        self.expect(untested, f"{A_CC}: only forwards\n", "has a test now")
        self.expect(untested, "common/io/z.cc: only forwards\n", "there is no")
        self.expect(
            untested,
            "worker/worker_main.cc: tests/x_test.cc does\n",
            "there is no tests/x_test.cc",
        )
        self.expect(untested, "common/io/a.cc\n", 'is not "path.cc: reason"')

    def test_terms_are_defined_once(self):
        glossary = "docs/glossary.md"
        good = (
            "# Glossary\n\n- **slot**: a share\n- **rank**: a number\n\n"
            "| term | meaning |\n|---|---|\n| **layout** | blocks |\n"
        )
        self.expect(glossary, good)
        self.expect(
            glossary,
            good + "\n**Slot**: once more\n",
            f"{glossary}:10: defines slot again; line 3 does",
        )
        self.expect(glossary, good + "| layout | again |\n", "defines layout")

    def test_old_words_are_gone(self):
        head = "# Glossary\n\n## Words that are not used\n\n"
        tree = good_tree()
        tree["docs/glossary.md"] = head + (
            "- `old thing`, `Oldish` -> new\n- `[Ww]orn\\w*` -> x\n"
            "\n## More\n\n- `file` is a word\n"
        )
        tree[A_CC] = "int Thing; int Oldishly;  // a file\n"
        tree["CHANGELOG.md"] = "Oldish is gone.\n"
        self.assertEqual(findings(tree), [])
        tree[A_CC] = "int IsWornOut;  // Old\n// thing\n// Oldish, old things\n"
        self.assertEqual(
            [line.split(";")[0] for line in findings(tree)],
            [
                "docs/glossary.md: old thing: 1 places with a word that "
                "docs/glossary.md replaces",
                f"    {A_CC}:1: Old // thing",
                "docs/glossary.md: Oldish: 1 places with a word that "
                "docs/glossary.md replaces",
                "    common/io/a.cc:3: Oldish",
                "docs/glossary.md: [Ww]orn\\w*: 1 places with a word that "
                "docs/glossary.md replaces",
                "    common/io/a.cc:1: WornOut",
            ],
        )
        for entry, want in (
            ("- old, new\n", 'is not "- `old` -> new"'),
            ("- `(` -> x\n", "( is no pattern"),
        ):
            self.expect("docs/glossary.md", head + entry, want)

    def test_conditional_expressions_are_not_nested(self):
        for good in (
            "a ? b : c, d ? e : f",
            "F(a ? b : c) + (d ? e : f)",
            "a ? b::c : d; x = e ? f : g",
            '"a ? b : c ? d : e"',
            "[&] { return a ? b : c; }, d ? e : f",
        ):
            self.expect(A_CC, f"int x = F({good});\n")
        for bad in (
            "a ? b : c ? d : e",
            "a ? b ? c : d : e",
            "a ? (b ? c : d) : e",
            "(a ? b : c) ? d : e",
            "a ? b : F([&] { return c ? d : e; })",
        ):
            tree = good_tree()
            tree[A_CC] = f"int x = F({bad});\n"
            self.assertEqual(
                findings(tree),
                [
                    "tree: 1 nested conditional expressions; at most 0 allowed",
                    "    common/io/a.cc:1: a ?: in a ?:",
                ],
                bad,
            )

    def test_conditional_expressions_are_few(self):
        # 1,000 lines in three files, one of them all comments.
        tree = {f"common/io/{n}.cc": "// x\n" * 400 for n in "ab"}
        tree["common/io/c.cc"] = "int x = a ? b : c;\n" * 6 + "\n" * 194
        self.assertEqual(measured("conditionals", tree), {"product": 6.0})
        tree["common/io/c.cc"] = "int x = a ? b : c;\n" * 7 + "\n" * 193
        self.assertIn(
            "product .cc: product: 7 conditional expressions in "
            "1,000 lines of product .cc; at most 6 allowed",
            findings(tree),
        )

    def test_bodies_have_comments(self):
        text = 'int x;  // no\n// yes\n\n/* and\n   yes */\nR"(\n// no\n)"\n'
        self.assertEqual(cxx.comment_lines(text), [2, 4, 5])
        lines = "// x\n" * 20 + "\n" * 380
        tree = {f"common/io/{n}.cc": lines for n in "abc"}
        self.assertEqual(measured("comments", tree), {"product": 5.0})
        tree["common/io/c.cc"] = "// License\n" * 20 + "\n" * 380
        self.assertIn(
            "product .cc: product: 3.3 % of lines of product .cc "
            "that are comments; at least 5 allowed",
            findings(tree),
        )

    def test_invariants_are_cited(self):
        tree = good_tree()
        tree[A_H] = "// X.\n//   I1. One.\n//   I2. Two.\n" + header(A_H)
        tree["common/io/b.h"] = tree[A_H].replace("_A_", "_B_")
        tree["common/io/BUILD"] += 'cc_library(\n    hdrs = ["b.h"],\n)\n'
        tree[A_CC] = "// I1 and (I2)\n"
        self.assertEqual(findings(tree), [])
        tree[A_CC] = 'Log("I2");  // I1: so.\n'
        self.assertEqual(
            findings(tree),
            [
                "tree: 1 invariants that the .cc of their header does not cite; at "
                "most 0 allowed",
                "    common/io/a.h: I2",
            ],
        )


class RatchetTest(unittest.TestCase):
    def tree(self, lines, listed):
        tree = good_tree()
        tree[A_CC] = "// x\n" * lines
        tree[ratchet.RATCHET] = f"# Why.\n{listed}\n"
        return tree

    def expect(self, lines, listed, *wants):
        found = findings(self.tree(lines, listed))
        self.assertEqual(len(found), len(wants), found)
        for line, want in zip(found, wants):
            self.assertIn(want, line)

    def test_what_is_listed_may_neither_grow_nor_shrink_unsaid(self):
        listed = "lines common/io/a.cc 600"
        self.expect(600, listed)
        self.expect(
            601,
            listed,
            "601 lines; at most 600 allowed by tests/style/ratchet.txt:2",
        )
        self.expect(
            599, listed, 'ratchet.txt:2: write "lines common/io/a.cc 599"'
        )
        self.expect(500, listed, "ratchet.txt:2: take the line out")
        self.expect(
            500,
            "lines common/io/gone.cc 600",
            "take the line out; there is no common/io/gone.cc",
        )

    def test_lines_are_readable_and_single(self):
        self.expect(500, "common/io/a.cc 600", 'is not "kind name size"')
        self.expect(500, "wide common/io/a.cc 600", 'is not "kind name size"')
        self.expect(600, "lines common/io/a.cc 600\n" * 2, "stands here twice")

    def test_tighten_writes_down_what_got_better_only(self):
        listed = (
            "lines common/io/a.cc {}\nlines common/io/gone.cc 600\n"
            "lines tests/common/io/a_test.cc 900"
        )
        for recorded, written in ((700, 600), (550, 550)):
            with tempfile.TemporaryDirectory() as root:
                write(root, self.tree(600, listed.format(recorded)))
                tree = Tree(root)
                ratchet.tighten(tree, style_check.measures(tree))
                self.assertEqual(
                    tree.read(ratchet.RATCHET),
                    f"# Why.\nlines common/io/a.cc {written}\n",
                )

    def test_a_share_may_not_fall(self):
        tree = {f"common/io/{n}.cc": "// x\n" * 8 + "\n" * 392 for n in "abc"}
        for listed, want in (
            ("2", None),
            ("2.1", "2 % of"),
            ("1.9", 'write "comments product 2"'),
        ):
            tree[ratchet.RATCHET] = f"comments product {listed}\n"
            found = [line for line in findings(tree) if "product" in line]
            self.assertEqual(len(found), 0 if want is None else 1, found)
            self.assertIn(want or "", "".join(found))


class CxxTest(unittest.TestCase):
    def test_functions_are_found_whatever_their_head_looks_like(self):
        heads = {
            "int F(int (*f)(int), std::vector<int> v = {})": "F",
            "template <class T, size_t n = (3 > 2)>\nauto F() -> decltype(x())": "F",
            "A::A(int a)\n    : a_(a), b_{a}, c_(std::move(a))": "A::A",
            "A<T>::~A() noexcept": "A::~A",
            "bool A::operator==(const A& a) const": "A::operator==",
            "void A::operator()() const ABSL_LOCKS_EXCLUDED(m)": "A::operator_call",
            "TEST(ATest,\n     Adds)": "TEST(ATest, Adds)",
            "MACRO(x)\n\nstatic void F(int a)": "F",
            "__global__ void __launch_bounds__(256) K(int a)": "K",
            "struct sockaddr F(int a)": "F",
        }
        for head, name in heads.items():
            scan = cxx.Scan(
                "namespace a {\n" + head + " {\n  if (x) {\n  }\n"
                "}\n}  // namespace a\n"
            )
            self.assertEqual([f.name for f in scan.functions], [name], head)
            self.assertEqual(scan.functions[0].last, 5 + head.count("\n"))

    def test_what_is_no_function_is_not_taken_for_one(self):
        for text in (
            "const int kA[] = {1, 2};\n",
            "enum class A { kB };\n",
            "// void F() {\n// }\n",
            'char* s = "void F() {";\n',
            "#define F() {\n",
            "using A = B;\nstruct C { int d; };\n",
        ):
            scan = cxx.Scan(text)
            self.assertTrue(scan.balanced, text)
            self.assertEqual(scan.functions, [], text)

    def test_outermost_classes_are_found(self):
        scan = cxx.Scan(
            "namespace a {\n"
            "class ABSL_LOCKABLE A final : public B {\n"
            "  struct C {\n  };\n  int x = 1'000;\n};\n}\n"
            "struct D;\nunion E {\n};\n"
        )
        self.assertEqual(
            [tuple(c) for c in scan.classes], [("A", 2, 6), ("E", 9, 10)]
        )

    def test_an_unpaired_bracket_is_told(self):
        self.assertIn(
            "finds no pair",
            findings({**good_tree(), "common/io/a.cc": "void F() {\n"})[0],
        )


if __name__ == "__main__":
    unittest.main()
