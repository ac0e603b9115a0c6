"""The files of the tree, and what several checks ask of them."""

import os
import re
import subprocess

from checks import cxx

SOURCE = (".cc", ".h", ".cu", ".cuh")
HEADER = (".h", ".cuh")
TEXT = SOURCE + (
    ".proto",
    ".textproto",
    ".py",
    ".sh",
    ".bzl",
    ".bazelrc",
    ".md",
    "BUILD",
)
PRODUCT = ("client/", "common/", "deploy/", "proto/", "server/", "worker/")
SKIPPED_FOLDERS = (".git", "bazel-", "runs", "dist", "__pycache__")


class Tree:
    """The files under a root that git keeps, by path."""

    def __init__(self, root):
        self.root = root
        listed = subprocess.run(
            ["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        paths = (
            listed.stdout.decode().split("\n")
            if listed.returncode == 0
            else self._walk()
        )
        self.texts, self._scans = {}, {}
        for path in sorted(p for p in paths if p.endswith(TEXT)):
            full = os.path.join(root, path)
            if os.path.isfile(full):
                with open(full, encoding="utf-8", errors="replace") as file:
                    self.texts[path] = file.read()

    def _walk(self):
        for folder, folders, names in os.walk(self.root):
            folders[:] = [
                f for f in folders if not f.startswith(SKIPPED_FOLDERS)
            ]
            for name in names:
                yield os.path.relpath(os.path.join(folder, name), self.root)

    def read(self, path):
        """The text of any file under the root; "" if there is none."""
        full = os.path.join(self.root, path)
        if not os.path.isfile(full):
            return ""
        with open(full, encoding="utf-8") as file:
            return file.read()

    def scan(self, path):
        """The functions and classes of a source."""
        if path not in self._scans:
            self._scans[path] = cxx.Scan(self.texts[path])
        return self._scans[path]

    def sources(self, *suffixes):
        """(path, text) of Weir's own files with one of the suffixes."""
        for path, text in self.texts.items():
            if path.endswith(suffixes) and not path.startswith("third_party/"):
                yield path, text

    def product(self, *suffixes):
        """(path, text) of what is no test, benchmark or example."""
        for path, text in self.sources(*suffixes):
            if path.startswith(PRODUCT):
                yield path, text


def lines_of(text):
    return enumerate(text.split("\n"), start=1)


def includes(text):
    for number, line in lines_of(text):
        match = re.match(r'\s*#\s*include\s+(["<][^">]+[">])', line)
        if match:
            yield number, match.group(1)
