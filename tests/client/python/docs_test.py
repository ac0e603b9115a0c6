"""Runs every block of Python in docs/python.md, with real servers.

What follows "```python" in the line that opens a block says how:
  prelude    goes before the blocks that are not `whole`.
  whole      a script by itself.
  workers=N  by N workers at once; else by one.
"""

import os
import pathlib
import re
import tempfile
import unittest

from servers import Servers, run_scripts

PAGE = pathlib.Path(__file__).absolute().parents[3] / "docs" / "python.md"

# Before blocks that say nothing of an optimizer or a loader.
DEFAULTS = {
    "optimizer": """
optimizer = weir.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), model=model)
""",
    "loader": """
loader = DataLoader(
    data, batch_size=32, sampler=weir.DistributedSampler(data, 32))
""",
}


def blocks(text):
    """(first line's number, words after python, text) of each block."""
    found = re.finditer(r"^```python(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE)
    for block in found:
        line = text.count("\n", 0, block.start()) + 1
        yield line, block[1].split(), block[2]


def script(prelude, words, code):
    if "whole" in words:
        return code
    parts = [prelude]
    for name, default in DEFAULTS.items():
        if not re.search(rf"^{name} =", code, re.MULTILINE):
            parts.append(default)
    return "\n".join([*parts, code])


class DocsTest(unittest.TestCase):
    def setUp(self):
        os.environ.setdefault("WEIR_BIN_DIR", os.getcwd())
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)  # for what the blocks save

    def test_every_block_runs(self):
        text = PAGE.read_text(encoding="utf-8")
        found = list(blocks(text))
        self.assertEqual(len(found), text.count("```python"))
        preludes = [code for _, words, code in found if "prelude" in words]
        self.assertEqual(len(preludes), 1)
        for line, words, code in found:
            if "prelude" in words:
                continue
            with self.subTest(line=line):
                sizes = [w[8:] for w in words if w.startswith("workers=")]
                size = int(sizes[0]) if sizes else 1
                with Servers(2) as servers:
                    run_scripts(servers, script(preludes[0], words, code), size)

    def test_what_it_names_is_there(self):
        links = re.findall(r"\]\(([^)#:]+)\)", PAGE.read_text(encoding="utf-8"))
        self.assertGreater(len(links), 3)
        for link in links:
            self.assertTrue((PAGE.parent / link).exists(), link)


if __name__ == "__main__":
    unittest.main()
