"""The writer and the reader of an image's archive, with a small image."""

import gzip
import hashlib
import io
import json
import os
import pathlib
import subprocess
import tarfile
import tempfile
import unittest

WRITE = "deploy/image/write_image.py"
READ = "deploy/image/read_image.py"


def run(*command):
    return subprocess.run(
        ["/usr/bin/python3", "-B", *map(str, command)],
        capture_output=True,
        text=True,
    )


def make_tree(folder, names=("b", "a", "c")):
    """A small root directory, whose files are made in the order of `names`."""
    for path in "tmp", "run/weir", "opt/weir/bin":
        (folder / path).mkdir(parents=True)
    for name in names:
        (folder / "opt/weir/bin" / name).write_text(f"program {name}")
    (folder / "opt/weir/bin/a").chmod(0o700)
    (folder / "opt/weir/bin/link").symlink_to("a")
    return folder


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Image:
    """An archive in memory whose parts can be changed."""

    def __init__(self, path):
        self.path = path
        with tarfile.open(path) as tar:
            self.files = {
                entry.name: tar.extractfile(entry).read() for entry in tar
            }

    def json(self, name):
        return json.loads(self.files[name])

    def manifest_name(self):
        digest = self.json("index.json")["manifests"][0]["digest"]
        return "blobs/" + digest.replace(":", "/")

    def layer_name(self):
        digest = self.json(self.manifest_name())["layers"][0]["digest"]
        return "blobs/" + digest.replace(":", "/")

    def put(self, data):
        """Adds a part. Returns what a descriptor says of it."""
        self.files["blobs/sha256/" + sha256(data)] = data
        return {"digest": "sha256:" + sha256(data), "size": len(data)}

    def replace(self, change_config=None, layer=None):
        """Puts another configuration or layer in, with digests that fit."""
        manifest = self.json(self.manifest_name())
        del self.files[self.manifest_name()]
        config_name = "blobs/" + manifest["config"]["digest"].replace(":", "/")
        config = json.loads(self.files.pop(config_name))
        if layer is not None:
            digest = manifest["layers"][0]["digest"]
            del self.files["blobs/" + digest.replace(":", "/")]
            config["rootfs"]["diff_ids"] = ["sha256:" + sha256(layer)]
            manifest["layers"][0].update(self.put(gzip.compress(layer)))
        if change_config is not None:
            change_config(config)
        manifest["config"].update(self.put(json.dumps(config).encode()))
        index = self.json("index.json")
        index["manifests"][0].update(self.put(json.dumps(manifest).encode()))
        self.files["index.json"] = json.dumps(index).encode()
        docker = self.json("manifest.json")
        for part, value in (
            ("Config", manifest["config"]["digest"]),
            ("Layers", manifest["layers"][0]["digest"]),
        ):
            place = "blobs/" + value.replace(":", "/")
            docker[0][part] = [place] if part == "Layers" else place
        self.files["manifest.json"] = json.dumps(docker).encode()

    def change_layer(self, change):
        """Writes the layer anew, each of its entries as `change` leaves it."""
        out = io.BytesIO()
        with (
            tarfile.open(
                fileobj=io.BytesIO(self.files[self.layer_name()])
            ) as old,
            tarfile.open(fileobj=out, mode="w") as new,
        ):
            for entry in old:
                file = old.extractfile(entry) if entry.isreg() else None
                change(entry)
                new.addfile(entry, file if entry.isreg() else None)
        self.replace(layer=out.getvalue())

    def save(self):
        with tarfile.open(self.path, "w") as tar:
            for name, data in self.files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))


class ArchiveTest(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)

    def write(self, name, tree, *options):
        out = self.place / name
        done = run(WRITE, "--version", "1.2", "--out", out, *options, tree)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out, done.stdout

    def image(self, *options):
        tree = make_tree(self.place / "tree")
        return Image(self.write("image.tar", tree, *options)[0])

    def refuses(self, image, what):
        image.save()
        done = run(READ, image.path, self.place / "root")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(what, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def refuses_entry(self, at, what, **fields):
        """The reader refuses a layer in which one entry has other fields."""
        image = self.image()

        def change(entry):
            if entry.name == at:
                for field, value in fields.items():
                    setattr(entry, field, value)

        image.change_layer(change)
        self.refuses(image, what)

    def test_the_reader_gets_the_files_and_the_digest(self):
        tree = make_tree(self.place / "tree")
        out, digest = self.write("image.tar", tree)
        done = run(READ, out, self.place / "root")
        self.assertEqual((done.stdout, done.stderr), (digest, ""))
        bin_dir = self.place / "root/opt/weir/bin"
        self.assertEqual((bin_dir / "b").read_text(), "program b")
        self.assertEqual((bin_dir / "b").stat().st_mode & 0o7777, 0o644)
        self.assertEqual((bin_dir / "a").stat().st_mode & 0o7777, 0o755)
        self.assertEqual(os.readlink(bin_dir / "link"), "a")
        for path in "tmp", "run/weir":
            mode = (self.place / "root" / path).stat().st_mode
            self.assertEqual(mode & 0o7777, 0o1777)

    def test_order_times_and_modes_leave_no_trace(self):
        first = make_tree(self.place / "tree")
        second = make_tree(self.place / "other", names=("c", "b", "a"))
        for path in second.rglob("*"):
            if not path.is_symlink():
                os.utime(path, (1, 1))
                path.chmod(path.stat().st_mode & 0o700)
        one, digest = self.write("one.tar", first)
        two, other = self.write("two.tar", second)
        self.assertEqual(digest, other)
        self.assertEqual(one.read_bytes(), two.read_bytes())

    def test_another_file_gives_another_digest(self):
        tree = make_tree(self.place / "tree")
        _, digest = self.write("one.tar", tree)
        (tree / "opt/weir/bin/b").write_text("program B")
        self.assertNotEqual(digest, self.write("two.tar", tree)[1])

    def test_labels_name_version_and_source(self):
        image = self.image("--source", "https://example.org/weir")
        labels = image.json(image.manifest_name())["annotations"]
        for name, text in {
            "licenses": "Apache-2.0",
            "source": "https://example.org/weir",
            "title": "weir",
            "version": "1.2",
        }.items():
            self.assertEqual(labels["org.opencontainers.image." + name], text)

    def test_a_gpu_is_asked_for_by_the_gpus_image_alone(self):
        image = self.image("--gpu")
        docker = image.json("manifest.json")[0]
        self.assertEqual(docker["RepoTags"], ["weir:1.2-gpu"])
        environment = json.loads(image.files[docker["Config"]])["config"]["Env"]
        self.assertIn("NVIDIA_VISIBLE_DEVICES=all", environment)
        self.assertIn("NVIDIA_DRIVER_CAPABILITIES=compute,utility", environment)
        plain = Image(self.write("plain.tar", self.place / "tree")[0])
        docker = plain.json("manifest.json")[0]
        self.assertEqual(docker["RepoTags"], ["weir:1.2"])
        self.assertNotIn(b"NVIDIA", plain.files[docker["Config"]])

    def test_a_pipe_is_not_packed(self):
        tree = make_tree(self.place / "tree")
        os.mkfifo(tree / "opt/pipe")
        out = self.place / "image.tar"
        done = run(WRITE, "--version", "1", "--out", out, tree)
        self.assertEqual(done.returncode, 1)
        self.assertIn("opt/pipe is neither file, folder nor link", done.stderr)
        self.assertFalse(out.exists())

    def test_the_reader_takes_parts_that_were_replaced_whole(self):
        image = self.image()
        image.change_layer(lambda entry: None)
        image.save()
        done = run(READ, image.path, self.place / "root")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_damaged_layer_is_refused(self):
        image = self.image()
        data = bytearray(image.files[image.layer_name()])
        data[len(data) // 2] ^= 1
        image.files[image.layer_name()] = bytes(data)
        self.refuses(image, "is not the digest of its file")

    def test_a_layer_that_is_cut_is_refused(self):
        image = self.image()
        image.files[image.layer_name()] = image.files[image.layer_name()][:-1]
        self.refuses(image, "has another size")

    def test_a_missing_part_is_refused(self):
        image = self.image()
        del image.files[image.layer_name()]
        self.refuses(image, "there is no blobs/sha256/")

    def test_a_part_that_nothing_names_is_refused(self):
        image = self.image()
        image.put(b"something else")
        self.refuses(image, "nothing names")

    def test_a_missing_field_is_refused(self):
        image = self.image()
        image.files["index.json"] = b"{}"
        self.refuses(image, "'manifests' is missing")

    def test_a_file_that_is_no_archive_is_refused(self):
        path = self.place / "image.tar"
        path.write_bytes(b"no archive")
        done = run(READ, path, self.place / "root")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_dockers_list_of_another_layer_is_refused(self):
        image = self.image()
        docker = image.json("manifest.json")
        docker[0]["Layers"] = []
        image.files["manifest.json"] = json.dumps(docker).encode()
        self.refuses(image, "Docker's manifest.json names another image")

    def test_root_as_the_user_is_refused(self):
        image = self.image()
        image.replace(lambda config: config["config"].update(User="0"))
        self.refuses(image, "User is 0")

    def test_another_layer_than_the_configuration_says_is_refused(self):
        image = self.image()
        digest = "sha256:" + "0" * 64
        image.replace(lambda config: config["rootfs"].update(diff_ids=[digest]))
        self.refuses(image, f"not the digest {digest}")

    def test_rights_for_whoever_runs_it_are_refused(self):
        self.refuses_entry("opt/weir/bin/a", "has the mode 4755", mode=0o4755)

    def test_a_file_that_all_may_write_is_refused(self):
        self.refuses_entry("opt/weir/bin/b", "has the mode 666", mode=0o666)

    def test_another_owner_is_refused(self):
        self.refuses_entry("opt/weir", "the owner of opt/weir", uid=10001)

    def test_a_time_is_refused(self):
        self.refuses_entry("opt/weir/bin/b", "has a time", mtime=1)

    def test_a_name_out_of_the_image_is_refused(self):
        self.refuses_entry("opt/weir/bin/b", "the name", name="../../b")

    def test_a_link_out_of_the_image_is_refused(self):
        self.refuses_entry(
            "opt/weir/bin/link", "out of the image", linkname="../../../../etc"
        )

    def test_a_device_is_refused(self):
        self.refuses_entry(
            "opt/weir/bin/b", "is a special file", type=tarfile.CHRTYPE, size=0
        )

    def test_names_out_of_order_are_refused(self):
        self.refuses_entry("opt/weir/bin/a", "not sorted", name="zzz")


if __name__ == "__main__":
    unittest.main()
