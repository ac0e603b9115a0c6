"""Checks the archive of an image and unpacks its files.

  read_image.py ARCHIVE FOLDER

Reads every part by the digest that names it, as OCI's image specification and
`docker load` do, and holds what Weir promises of its image: no owner but root
and the user of Weir, no program that gives its caller rights, no time, no name
out of order. Shares no line with write_image.py. FOLDER gets the root directory
of a container; as root with its owners. Prints the digest of the manifest, or
what is wrong, and then ends with 1.
"""

import gzip
import hashlib
import io
import json
import os
import pathlib
import posixpath
import sys
import tarfile
import zlib

USER = 10001
FOLDER_MODES = {"tmp": 0o1777, "run/weir": 0o1777}
# More than any layer has: what is packed may say that it is endless.
LAYER_BYTES_MAX = 4 << 30


class Fault(Exception):
    """What is wrong with the archive, in one line."""


def require(holds: object, what: str) -> None:
    if not holds:
        raise Fault(what)


# What damaged files raise when they are read.
UNREADABLE = (
    Fault,
    EOFError,
    OSError,
    ValueError,
    tarfile.TarError,
    zlib.error,
)


class Archive:
    """The files of the archive. Remembers which of them were asked for."""

    def __init__(self, path: str) -> None:
        self.files = {}
        with tarfile.open(path, "r:") as tar:
            for entry in tar:
                require(entry.isreg(), f"{entry.name} is not a file")
                require(entry.name not in self.files, f"{entry.name} twice")
                self.files[entry.name] = tar.extractfile(entry).read()
        self.read: set[str] = set()

    def file(self, name: str) -> bytes:
        require(name in self.files, f"there is no {name}")
        self.read.add(name)
        return self.files[name]

    def json(self, name: str):
        return json.loads(self.file(name))

    def blob(self, descriptor: dict, media_type: str) -> bytes:
        """The part that a descriptor names, if it is what that says."""
        digest = descriptor["digest"]
        require(
            descriptor["mediaType"] == media_type,
            f"{digest} is a {descriptor['mediaType']}, not a {media_type}",
        )
        data = self.file(blob_name(digest))
        require(len(data) == descriptor["size"], f"{digest} has another size")
        require(
            hashlib.sha256(data).hexdigest() == digest.removeprefix("sha256:"),
            f"{digest} is not the digest of its file",
        )
        return data


def blob_name(digest: str) -> str:
    require(digest.startswith("sha256:"), f"{digest} is not by SHA-256")
    return "blobs/sha256/" + digest.removeprefix("sha256:")


def read_layer(packed: bytes, diff_id: str) -> bytes:
    with gzip.open(io.BytesIO(packed)) as file:
        layer = file.read(LAYER_BYTES_MAX + 1)
    require(len(layer) <= LAYER_BYTES_MAX, "a layer is too large")
    require(
        "sha256:" + hashlib.sha256(layer).hexdigest() == diff_id,
        f"a layer has not the digest {diff_id} when it is unpacked",
    )
    return layer


def check_entry(entry: tarfile.TarInfo) -> None:
    name = entry.name
    clean = posixpath.normpath(name) == name and not name.startswith("/")
    require(clean and ".." not in name.split("/"), f"the name {name!r}")
    require(entry.mtime == 0, f"{name} has a time")
    owner = USER if name == "run/weir" else 0
    require((entry.uid, entry.gid) == (owner, owner), f"the owner of {name}")
    if entry.issym():
        target = posixpath.join(posixpath.dirname(name), entry.linkname)
        require(
            not posixpath.normpath(target).startswith(("/", "..")),
            f"{name} links to {entry.linkname}, out of the image",
        )
        return
    require(entry.isreg() or entry.isdir(), f"{name} is a special file")
    mode = FOLDER_MODES.get(name, 0o755)
    require(
        entry.mode == mode or (entry.isreg() and entry.mode == 0o644),
        f"{name} has the mode {entry.mode:o}",
    )


def unpack(layer: bytes, folder: pathlib.Path) -> None:
    names = []
    with tarfile.open(fileobj=io.BytesIO(layer), mode="r:") as tar:
        for entry in tar:
            check_entry(entry)
            names.append(entry.name)
            path = folder / entry.name
            if entry.isdir():
                path.mkdir(exist_ok=True)
            elif entry.issym():
                path.symlink_to(entry.linkname)
            else:
                path.write_bytes(tar.extractfile(entry).read())
            if not entry.issym():
                path.chmod(entry.mode)
                if os.geteuid() == 0:
                    os.chown(path, entry.uid, entry.gid)
    require(names == sorted(set(names)), "the names of a layer are not sorted")


def check_config(config: dict, manifest: dict) -> None:
    """What a container of the image starts, and as whom."""
    runs = config["config"]
    for field, value in {
        "Cmd": ["--help"],
        "Entrypoint": ["weir"],
        "User": f"{USER}:{USER}",
        "WorkingDir": "/run/weir",
    }.items():
        require(runs[field] == value, f"{field} is {runs[field]}")
    require("PATH=/opt/weir/bin" in runs["Env"], f"Env is {runs['Env']}")
    require(
        (config["architecture"], config["os"]) == ("amd64", "linux"),
        "the platform is not linux/amd64",
    )
    for name in "description", "licenses", "title", "version":
        label = "org.opencontainers.image." + name
        require(runs["Labels"].get(label), f"there is no label {label}")
    require(runs["Labels"] == manifest["annotations"], "labels that differ")


def read(path: str, folder: pathlib.Path) -> str:
    archive = Archive(path)
    oci = "application/vnd.oci.image."
    version = archive.json("oci-layout")["imageLayoutVersion"]
    require(version == "1.0.0", f"the layout's version is {version}")
    index = archive.json("index.json")
    require(len(index["manifests"]) == 1, "there is not one manifest")
    descriptor = index["manifests"][0]
    manifest = json.loads(archive.blob(descriptor, oci + "manifest.v1+json"))
    config = json.loads(
        archive.blob(manifest["config"], oci + "config.v1+json")
    )
    check_config(config, manifest)
    diff_ids = config["rootfs"]["diff_ids"]
    require(len(diff_ids) == len(manifest["layers"]), "layers that differ")
    for layer, diff_id in zip(manifest["layers"], diff_ids):
        packed = archive.blob(layer, oci + "layer.v1.tar+gzip")
        unpack(read_layer(packed, diff_id), folder)
    docker = archive.json("manifest.json")
    require(
        len(docker) == 1
        and docker[0]["Config"] == blob_name(manifest["config"]["digest"])
        and docker[0]["Layers"]
        == [blob_name(layer["digest"]) for layer in manifest["layers"]],
        "Docker's manifest.json names another image",
    )
    unread = sorted(set(archive.files) - archive.read)
    require(not unread, f"nothing names {unread}")
    return descriptor["digest"]


def main(path: str, folder: str) -> None:
    os.umask(0o022)
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        print(read(path, pathlib.Path(folder)))
    except KeyError as error:
        sys.exit(f"weir: {path}: a field {error} is missing")
    except UNREADABLE as error:
        sys.exit(f"weir: {path}: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
