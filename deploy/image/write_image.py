"""Writes folders as the layers of a container image, without a container tool.

  write_image.py --version VERSION --out FILE [--gpu] [--source URL] LAYER...

FILE becomes an OCI image layout in one tar, which is also an archive of
`docker save`: podman, skopeo, containerd and Docker read it. Each LAYER is a
folder with the root directory's files of that layer. Prints the digest of the
image's manifest.

The same files give the same bytes: names are sorted, every time is 1970-01-01,
and owners and modes follow from the rules in `entry_of`, whoever runs this with
whatever umask.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import tarfile

USER = 10001
CREATED = "1970-01-01T00:00:00Z"
# The folders with an owner or a mode of their own. A runtime that mounts a
# tmpfs on /run/weir takes the folder's mode and not its owner (runc 1.1), and
# some clusters choose the user themselves; so both may be written by everyone.
FOLDERS = {"tmp": (0, 0o1777), "run/weir": (USER, 0o1777)}
# zlib's middle: 9 takes twice the time for 0.3% less (2026-11-25).
COMPRESSION = 6

DESCRIPTION = "Parameter-server training across machines"
OCI = "application/vnd.oci.image"


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def json_bytes(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def entry_of(path: pathlib.Path, name: str) -> tarfile.TarInfo:
    """The header of a file: root's, readable for all, 1970."""
    entry = tarfile.TarInfo(name)
    if path.is_symlink():
        entry.type = tarfile.SYMTYPE
        entry.linkname = os.readlink(path)
        entry.mode = 0o777
    elif path.is_dir():
        entry.type = tarfile.DIRTYPE
        entry.uid, entry.mode = FOLDERS.get(name, (0, 0o755))
        entry.gid = entry.uid
    elif path.is_file():
        status = path.stat()
        entry.size = status.st_size
        entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
    else:
        raise SystemExit(f"weir: {path} is neither file, folder nor link")
    return entry


def layer_tar(folder: pathlib.Path) -> bytes:
    """The files of a folder as a tar, parents before what is in them."""
    names = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*")
    )
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.USTAR_FORMAT
    ) as tar:
        for name in names:
            path = folder / name
            entry = entry_of(path, name)
            if entry.isreg():
                with path.open("rb") as file:
                    tar.addfile(entry, file)
            else:
                tar.addfile(entry)
    return out.getvalue()


def labels_of(version: str, source: str) -> dict[str, str]:
    labels = {
        "description": DESCRIPTION,
        "licenses": "Apache-2.0",
        "title": "weir",
        "version": version,
    }
    if source:
        labels["source"] = source
    return {
        "org.opencontainers.image." + name: text
        for name, text in labels.items()
    }


def environment(gpu: bool) -> list[str]:
    variables = ["PATH=/opt/weir/bin"]
    if gpu:
        variables += [
            # Where Kubernetes' device plug-ins and NVIDIA's container runtime
            # put the driver, beside the places that ld.so knows.
            "LD_LIBRARY_PATH=/opt/weir/cuda:/usr/local/nvidia/lib64:/usr/lib64",
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            "NVIDIA_VISIBLE_DEVICES=all",
        ]
    return variables


def config_of(
    gpu: bool, labels: dict[str, str], diff_ids: list[str]
) -> dict[str, object]:
    """The image's configuration: what a container of it starts, and as whom."""
    return {
        "architecture": "amd64",
        "config": {
            "Cmd": ["--help"],
            "Entrypoint": ["weir"],
            "Env": environment(gpu),
            "Labels": labels,
            "StopSignal": "SIGTERM",
            "User": f"{USER}:{USER}",
            "WorkingDir": "/run/weir",
        },
        "created": CREATED,
        "history": [
            {"created": CREATED, "created_by": "weir image"} for _ in diff_ids
        ],
        "os": "linux",
        "rootfs": {"diff_ids": diff_ids, "type": "layers"},
    }


class Blobs:
    """What an image is made of, each part under its digest."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def add(self, data: bytes, media_type: str) -> dict[str, object]:
        """Keeps a part. Returns its descriptor."""
        digest = digest_of(data)
        self.files[self.place({"digest": digest})] = data
        return {
            "digest": digest,
            "mediaType": OCI + media_type,
            "size": len(data),
        }

    @staticmethod
    def place(descriptor: dict[str, object]) -> str:
        """The file of a part in the archive."""
        return "blobs/" + str(descriptor["digest"]).replace(":", "/")


def index_of(manifest: dict[str, object], tag: str) -> dict[str, object]:
    """What an OCI image layout begins with."""
    entry = {
        **manifest,
        "annotations": {
            # containerd takes this name as it stands, and Kubernetes asks it
            # for weir:TAG by its full form.
            "io.containerd.image.name": f"docker.io/library/weir:{tag}",
            "org.opencontainers.image.ref.name": tag,
        },
        "platform": {"architecture": "amd64", "os": "linux"},
    }
    return {
        "manifests": [entry],
        "mediaType": OCI + ".index.v1+json",
        "schemaVersion": 2,
    }


def write_tar(out: pathlib.Path, files: dict[str, bytes]) -> None:
    with tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--source", default="")
    parser.add_argument("layers", nargs="+", type=pathlib.Path)
    options = parser.parse_args()

    blobs = Blobs()
    layers, diff_ids = [], []
    for folder in options.layers:
        tar = layer_tar(folder)
        diff_ids.append(digest_of(tar))
        packed = gzip.compress(tar, COMPRESSION, mtime=0)
        layers.append(blobs.add(packed, ".layer.v1.tar+gzip"))
    labels = labels_of(options.version, options.source)
    config = blobs.add(
        json_bytes(config_of(options.gpu, labels, diff_ids)), ".config.v1+json"
    )
    manifest_type = ".manifest.v1+json"
    manifest = blobs.add(
        json_bytes(
            {
                "annotations": labels,
                "config": config,
                "layers": layers,
                "mediaType": OCI + manifest_type,
                "schemaVersion": 2,
            }
        ),
        manifest_type,
    )
    tag = options.version + ("-gpu" if options.gpu else "")
    docker = [
        {
            "Config": blobs.place(config),
            "Layers": [blobs.place(layer) for layer in layers],
            "RepoTags": [f"weir:{tag}"],
        }
    ]
    write_tar(
        options.out,
        blobs.files
        | {
            "index.json": json_bytes(index_of(manifest, tag)),
            "manifest.json": json_bytes(docker),
            "oci-layout": json_bytes({"imageLayoutVersion": "1.0.0"}),
        },
    )
    print(manifest["digest"])


if __name__ == "__main__":
    main()
