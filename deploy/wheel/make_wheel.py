"""Packs a tree of files into a wheel: its metadata, a RECORD, one zip file.

    make_wheel.py --tree DIR --licenses DIR --version V --tag TAG --readme FILE
                  --out DIR

Prints the wheel's name. The same files give the same bytes: the entries are
sorted, have one date, and hold nothing of the machine. No packaging tool is
used, because a wheel is only a zip file with three small texts
(packaging.python.org, "Binary distribution format"), and the tools want to
build the package themselves.
"""

import argparse
import base64
import hashlib
import os
import zipfile

METADATA = """\
Metadata-Version: 2.1
Name: weir
Version: {version}
Summary: Parameter servers for training across machines
License: Apache-2.0
Requires-Python: >=3.11,<3.12
Requires-Dist: numpy
Provides-Extra: torch
Requires-Dist: torch; extra == "torch"
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """\
Wheel-Version: 1.0
Generator: weir
Root-Is-Purelib: false
Tag: {tag}
"""

ENTRY_POINTS = """\
[console_scripts]
weir = weir._launcher:main
"""


def files_below(folder):
    """Yields (path relative to folder, content, whether it can be run)."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                yield (
                    os.path.relpath(path, folder),
                    file.read(),
                    os.access(path, os.X_OK),
                )


def write(archive, name, content, executable=False):
    entry = zipfile.ZipInfo(name)  # 1980-01-01
    entry.create_system = 3  # Unix, whose modes follow
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)


def record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return f"{name},sha256={digest.rstrip(b'=').decode()},{len(content)}\n"


def main():
    parser = argparse.ArgumentParser()
    for name in "tree", "licenses", "version", "tag", "readme", "out":
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()
    with open(options.readme, encoding="utf-8") as file:
        readme = file.read()
    info = f"weir-{options.version}.dist-info"
    texts = {
        "METADATA": METADATA.format(version=options.version, readme=readme),
        "WHEEL": WHEEL.format(tag=options.tag),
        "entry_points.txt": ENTRY_POINTS,
        "top_level.txt": "weir\n",
    }
    files = list(files_below(options.tree))
    for path, content, _ in files_below(options.licenses):
        files.append((f"{info}/licenses/{path}", content, False))
    for name, text in texts.items():
        files.append((f"{info}/{name}", text.encode(), False))
    record = "".join(record_line(name, content) for name, content, _ in files)
    record += f"{info}/RECORD,,\n"
    files.append((f"{info}/RECORD", record.encode(), False))

    wheel = f"weir-{options.version}-{options.tag}.whl"
    with zipfile.ZipFile(os.path.join(options.out, wheel), "w") as archive:
        for name, content, executable in files:
            write(archive, name, content, executable)
    print(wheel)


if __name__ == "__main__":
    main()
