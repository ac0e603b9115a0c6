"""Shows that every check of style_check.py can fail, and passes a good tree."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import style_check

GUARD = "#ifndef {0}\n#define {0}\n{1}#endif  // {0}\n"


def header(path, body=""):
    guard = path.replace("/", "_").replace(".", "_").upper() + "_"
    return "// What it is for.\n" + GUARD.format(guard, body)


def good_tree():
    return {
        "docs/design_notes.md": "# Notes\n\n## Push identity\n\nText.\n",
        "common/BUILD": 'cc_library(\n    name = "a",\n    srcs = ["a.cc"],\n'
                        '    hdrs = ["a.h"],\n)\n',
        "common/a.h": header(
            "common/a.h",
            '// See "Push identity" in\n// docs/design_notes.md.\n'),
        "common/a.cc": '#include "common/a.h"\n',
        "tests/common/BUILD":
            'cc_test(\n    name = "a_test",\n'
            '    srcs = ["a_test.cc"],\n)\n',
        "tests/common/a_test.cc": '#include "common/a.h"\n',
        "client/cc/BUILD": 'cc_library(\n    name = "weir",\n'
                           '    hdrs = ["weir.h"],\n)\n',
        "client/cc/weir.h": header("client/cc/weir.h", "#include <string>\n"),
        "worker/BUILD": 'cc_binary(\n    name = "w",\n'
                        '    srcs = ["worker_main.cc"],\n)\n',
        "worker/worker_main.cc": '#include "server/chief/chief.h"\n',
        "tests/style/untested.txt": "# path: reason\n",
    }


def findings(tree):
    with tempfile.TemporaryDirectory() as root:
        for path, text in tree.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        loaded = style_check.Tree(root)
        return [line for check in style_check.CHECKS for line in check(loaded)]


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
        include = '#include "common/a.h"\n#include "{}"\n'
        cases = (
            ("common/a.cc", "proto/x.h", "common may not include"),
            ("common/a.cc", "client/cc/x.h", "common may not include"),
            ("common/a.cc", "worker/x.h", "common may not include"),
            ("worker/worker_main.cc", "server/ps/x.h", "worker may not"),
        )
        for path, target, want in cases:
            self.expect(path, include.format(target), want)

    def test_every_forbidden_pair_of_layers_is_refused(self):
        layers = [name for name, below in style_check.LAYERS.items()
                  if below is not None]
        for here in layers:
            for there in layers:
                allowed = there == here or there in style_check.LAYERS[here]
                tree = {f"{here}/a.cc": f'#include "{there}/b.h"\n',
                        f"{here}/BUILD": 'cc_binary(\n    srcs = ["a.cc"],\n)\n'}
                self.assertEqual(findings(tree) == [], allowed, (here, there))

    def test_the_ps_and_the_client_never_meet(self):
        for here, there in (("server/ps", "client/cc"),
                            ("client/cc", "server/ps")):
            tree = {f"{here}/a.cc": f'#include "{there}/b.h"\n',
                    f"{here}/BUILD": 'cc_binary(\n    srcs = ["a.cc"],\n)\n'}
            self.assertIn("may not include", findings(tree)[0])

    def test_only_worker_main_may_host_the_chief(self):
        tree = good_tree()
        tree["worker/BUILD"] += '\ncc_binary(\n    srcs = ["b.cc"],\n)\n'
        tree["worker/b.cc"] = '#include "server/chief/chief.h"\n'
        self.assertEqual(len(findings(tree)), 1)

    def test_common_knows_no_protobuf_grpc_or_cuda(self):
        for target in ("google/protobuf/message.h", "grpcpp/grpcpp.h",
                       "grpc/grpc.h", "x.pb.h", "cuda_runtime.h", "cudnn.h"):
            self.expect("common/a.cc", f"#include <{target}>\n", "may not know")

    def test_public_headers_name_the_standard_library_only(self):
        for target in ('"absl/status/status.h"', '"common/a.h"', "<grpc.h>"):
            self.expect("client/cc/weir.h",
                        header("client/cc/weir.h", f"#include {target}\n"),
                        "a public header includes")

    def test_sizes_are_bounded_unless_a_reason_is_given(self):
        body = "// x\n" * 300
        self.expect("common/a.h", header("common/a.h", body), "304 lines")
        self.expect("common/a.cc", "// x\n" * 601, "601 lines")
        self.expect("tests/common/a_test.cc", "// x\n" * 801, "801 lines")
        self.expect("common/a.cc",
                    "// Long because it is a table.\n" + "// x\n" * 601)
        self.expect("common/a.cc",
                    "// x\n" * 601 + "// Long because it is a table.\n",
                    "602 lines")
        self.expect("common/a.cc", "// " + "x" * 78 + "\n", "81 columns")

    def test_guards_match_paths(self):
        self.expect("common/a.h", header("common/b.h"), "is not COMMON_A_H_")
        self.expect("common/a.h", "// x\n#pragma once\n", "is not COMMON_A_H_")

    def test_headers_begin_with_a_comment(self):
        self.expect("common/a.h", header("common/a.h").split("\n", 1)[1],
                    "begins with a comment")

    def test_design_notes_resolve(self):
        self.expect("common/a.cc",
                    '// See "Push identity" and "No such" in\n'
                    "// docs/design_notes.md.\n", '"No such"')
        self.expect("docs/design_notes.md", "# Notes\n", '"Push identity"')

    def test_nothing_is_left_to_do(self):
        for word in ("TO" + "DO", "FIX" + "ME"):
            self.expect("common/a.cc", f"// {word}: later\n", "finish it")

    def test_failpoints_have_a_name_a_place_and_a_description(self):
        tree = good_tree()
        tree["common/BUILD"] += 'cc_library(\n    name = "failpoint",\n' \
            '    srcs = ["failpoint.cc"],\n    hdrs = ["failpoint.h"],\n)\n'
        tree["tests/common/base/failpoint_test.cc"] = '  Failpoint("test.a");\n'
        tree["tests/common/BUILD"] += 'cc_test(\n    name = "f",\n' \
            '    srcs = ["failpoint_test.cc"],\n)\n'
        words = "//   a.one, a.two  here\n//   a.three\n"
        tree["common/base/failpoint.h"] = words + header("common/base/failpoint.h")
        names = '    "a.one",\n    "a.two",\n    "a.three",\n'
        tree["common/base/failpoint.cc"] = names
        places = '  Failpoint("a.one");\n  return Failpoint("a.two");\n'
        tree["worker/worker_main.cc"] = places + '  Failpoint("a.three");\n'
        self.assertEqual(findings(tree), [])
        for path, text, wants in (
                ("worker/worker_main.cc", places, ["is called a.three"]),
                ("common/base/failpoint.cc", '    "a.one",\n    "a.two",\n',
                 ["does not know a.three", "describes a.three, which"]),
                ("common/base/failpoint.h", header("common/base/failpoint.h"),
                 [f"does not describe a.{n}" for n in ("one", "three", "two")])):
            found = findings({**tree, path: text})
            self.assertEqual(len(found), len(wants), found)
            for line, want in zip(found, wants):
                self.assertIn(want, line)

    def test_documents_name_tests_that_exist(self):
        tree = good_tree()
        tree["tests/common/a_test.cc"] = "TEST(ATest,\n     Adds) {\n}\n"
        tree["docs/a.md"] = "`ATest.Adds` shows it.\n"
        self.assertEqual(findings(tree), [])
        tree["docs/a.md"] += "So does `ATest.Takes`.\n"
        self.assertEqual(findings(tree),
                         ["docs/a.md:2: there is no test ATest.Takes"])

    def test_every_source_is_in_a_target(self):
        tree = good_tree()
        tree["common/b.h"] = header("common/b.h")
        tree["common/b.cc"] = "\n"
        tree["common/b.proto"] = "// x\n"
        self.assertEqual([line.split(":")[0] for line in findings(tree)],
                         ["common/b.cc", "common/b.h", "common/b.proto"])

    def test_every_library_source_has_its_test_or_a_reason(self):
        tree = good_tree()
        del tree["tests/common/a_test.cc"]
        tree["tests/common/BUILD"] = "\n"
        self.assertIn("has no tests/common/a_test.cc", findings(tree)[0])
        tree["tests/style/untested.txt"] = "common/a.cc: only forwards\n"
        self.assertEqual(findings(tree), [])

    def test_the_list_of_untested_sources_is_kept(self):
        untested = "tests/style/untested.txt"
        self.expect(untested, "common/a.cc: only forwards\n", "has a test now")
        self.expect(untested, "common/z.cc: only forwards\n", "there is no")
        self.expect(untested, "worker/worker_main.cc: tests/x_test.cc does\n",
                    "there is no tests/x_test.cc")
        self.expect(untested, "common/a.cc\n", "is not \"path.cc: reason\"")


if __name__ == "__main__":
    unittest.main()
