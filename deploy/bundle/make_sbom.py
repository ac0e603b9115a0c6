"""Writes what an archive of Weir holds of others, as CycloneDX 1.5 JSON.

  make_sbom.py PACKAGES VERSION >sbom.cdx.json

PACKAGES has a line "package file" for every file of a Debian package that was
carried along or compiled in, or "pypi:name@version file" for one of a Python
package, or "npm:name@version file"; libraries.sh and make_image.sh write it.
Versions are those that are installed on this machine, the licences those that
the Debian package's copyright file names. The same packages give the same
bytes.
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


def reference(package: str) -> str:
    """How the rest of the list calls a package."""
    return package if ":" in package else f"deb:{package}"


def identity(package: str) -> tuple[str, str, str, list[str]]:
    """The name, version, purl and licences of a package."""
    registry, _, place = package.partition(":")
    if place:  # Debian's names in these lists have no colon
        name, version = place.split("@")
        return (
            name,
            version,
            f"pkg:{registry}/{place}",
            [f"see LICENSES/{name}"],
        )
    version = version_of(package)
    place = f"{package}@{urllib.parse.quote(version, safe='~')}"
    purl = f"pkg:deb/debian/{place}?arch=amd64&distro=debian-12"
    return package, version, purl, licenses_of(package)


def component(package: str, files: set[str]) -> dict:
    """One package, with the files of it that are there."""
    name, version, purl, licenses = identity(package)
    return {
        "type": "library",
        "bom-ref": reference(package),
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": [{"license": {"name": license}} for license in licenses],
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
                        reference(package) for package in sorted(files)
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
