"""Writes what a bundle or a wheel holds of others, as CycloneDX 1.5 JSON.

  make_sbom.py PACKAGES VERSION >sbom.cdx.json

PACKAGES has a line "package file" for every file of a Debian package that was
carried along or compiled in (libraries.sh writes it). Versions are those that
are installed on this machine, the licences those that the package's copyright
file names. The same packages give the same bytes.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import urllib.parse


def version_of(package: str) -> str:
    """The version of an installed package."""
    query = ["dpkg-query", "-W", "-f", "${Version}\n", package]
    said = subprocess.run(query, stdout=subprocess.PIPE, text=True, check=True)
    return said.stdout.split("\n", 1)[0]  # of several architectures the first


def licenses_of(package: str) -> list[str]:
    """The short names in a machine-readable copyright file, or where it is."""
    path = pathlib.Path("/usr/share/doc", package, "copyright")
    text = path.read_text(encoding="utf-8", errors="replace")
    names = re.findall(r"(?m)^License:[ \t]*(\S[^\n]*?)[ \t]*$", text)
    return sorted(set(names)) or [f"see the copyright file of {package}"]


def component(package: str, files: set[str]) -> dict:
    """One package, with the files of it that are there."""
    version = version_of(package)
    place = f"{package}@{urllib.parse.quote(version, safe='~')}"
    return {
        "type": "library",
        "bom-ref": f"deb:{package}",
        "name": package,
        "version": version,
        "purl": f"pkg:deb/debian/{place}?arch=amd64&distro=debian-12",
        "licenses": [
            {"license": {"name": name}} for name in licenses_of(package)
        ],
        "properties": [
            {"name": "weir:file", "value": name} for name in sorted(files)
        ],
    }


def main(packages: str, version: str) -> None:
    files = collections.defaultdict(set)
    for line in pathlib.Path(packages).read_text().splitlines():
        package, file = line.split(" ", 1)
        files[package].add(file)
    json.dump(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "component": {
                    "type": "application",
                    "bom-ref": "weir",
                    "name": "weir",
                    "version": version,
                    "licenses": [{"license": {"id": "Apache-2.0"}}],
                }
            },
            "components": [
                component(package, files[package]) for package in sorted(files)
            ],
            "dependencies": [
                {
                    "ref": "weir",
                    "dependsOn": [
                        f"deb:{package}" for package in sorted(files)
                    ],
                }
            ],
        },
        sys.stdout,
        indent=1,
    )
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
