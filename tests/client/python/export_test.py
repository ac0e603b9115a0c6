"""`weir checkpoint export` of a job with tables, read without Weir."""

import glob
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import numpy as np

from safetensors_file import read_safetensors
from servers import binary, weir_cli

JOB = """
name: "export" seed: 1
table { name: "ads" dim: 4 optimizer { adam {} } }
table { name: "few" dim: 3 optimizer { sgd {} } }
model {
  layer { name: "bottom" input: "features" dense { units: 3 } }
  layer { name: "ads" embedding_bag { table: "ads" feature: "C1" } }
  layer { name: "few" embedding_bag { table: "few" feature: "C2" } }
  layer { name: "flat1" input: "ads" flatten {} }
  layer { name: "flat2" input: "few" flatten {} }
  layer { name: "all" input: "bottom" input: "flat1" input: "flat2" concat {} }
  layer { name: "logit" dense { units: 1 } }
  loss { sigmoid_cross_entropy {} }
}
data {
  train {
    click_log { count: 600 numeric: 2 categorical: 2 ids_per_feature: 300 }
  }
}
train { batch_size: 20 steps: 1000000 }
optimizer { sgd {} }
schedule { learning_rate: 0.1 }
update { sync { contributions: 1 } }
checkpoint { every_steps: 10 tables_full_every: 1000000 keep: 1000000 }
"""


def train_arguments(folder, name, ps):
    job = os.path.join(folder, "job.textproto")
    with open(job, "w", encoding="utf-8") as file:
        file.write(JOB)
    run = os.path.join(folder, name)
    return ["train", job, "--ps", ps, "--device", "cpu", "--workdir", run]


def train(folder, name, ps):
    """30 steps; the directory of their only checkpoint."""
    arguments = train_arguments(folder, name, ps)
    arguments += ["--set", "train.steps=30", "--set", "checkpoint={}"]
    done = weir_cli(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return os.path.join(folder, name, "checkpoints", "ckpt-30")


def base_of(checkpoint):
    """The checkpoint that the files of every shard extend, or "" if one of
    them holds all rows, as it does when it was taken of the version before the
    newest."""
    with open(os.path.join(checkpoint, "manifest.json")) as file:
        files = json.load(file)["file"]
    bases = {entry["tables"].get("base", "") for entry in files}
    return bases.pop() if len(bases) == 1 else ""


def newest_increment(run):
    """The newest checkpoint that extends another, or None."""
    found = []
    for path in glob.glob(os.path.join(run, "checkpoints", "ckpt-*")):
        try:
            if base_of(path):
                found.append((int(path.rpartition("-")[2]), path))
        except FileNotFoundError:  # still being written
            pass
    return max(found)[1] if found else None


def train_to_an_increment(folder, name):
    """Stops once a checkpoint extends another, and returns it."""
    run = os.path.join(folder, name)
    arguments = train_arguments(folder, name, "2")
    with open(os.path.join(folder, "log"), "w") as log:
        process = subprocess.Popen(
            [binary("deploy/cli/weir_cli"), *arguments],
            env=dict(os.environ, WEIR_BIN_DIR=binary(".")),
            stdout=log,
            stderr=log,
        )
    # On a busy machine many checkpoints are of the version before the newest.
    deadline = time.monotonic() + 200
    while newest_increment(run) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    # The checkpoint of the stop itself may hold all rows.
    increment = newest_increment(run)
    assert increment is not None
    return increment


class ExportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.increment = train_to_an_increment(cls.folder.name, "run")
        cls.base = base_of(cls.increment)
        cls.out = os.path.join(cls.folder.name, "model.safetensors")
        result = weir_cli(
            "checkpoint", "export", cls.increment, "--out", cls.out
        )
        assert result.returncode == 0, result.stderr
        cls.arrays = read_safetensors(cls.out)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    # What each file of the checkpoint says of a row, a later one over an
    # earlier one.
    def rows_of_the_files(self, table, dim):
        rows = {}
        checkpoints = os.path.dirname(self.increment)
        for name in (self.base, os.path.basename(self.increment)):
            for shard in range(2):
                path = f"{checkpoints}/{name}/tables-{shard}-of-2.safetensors"
                arrays = read_safetensors(path)
                ids, values = arrays[table + ".ids"], arrays[table + ".rows"]
                rows.update(
                    (int(i), value[:dim]) for i, value in zip(ids, values)
                )
        return rows

    def test_the_rows_are_those_of_the_newest_file_that_has_them(self):
        for table, dim in (("ads", 4), ("few", 3)):
            expected = self.rows_of_the_files(table, dim)
            ids = self.arrays[table + ".ids"]
            rows = self.arrays[table + ".rows"]
            self.assertEqual(ids.dtype, np.int64)
            self.assertEqual(rows.shape, (len(ids), dim))
            self.assertGreater(len(ids), 50)
            self.assertTrue(np.all(np.diff(ids) > 0))
            self.assertEqual({int(i) % 2**64 for i in ids}, set(expected))
            for i, row in zip(ids, rows):
                np.testing.assert_array_equal(row, expected[int(i) % 2**64])

    def test_numpy_loads_the_same_arrays(self):
        out = os.path.join(self.folder.name, "arrays")
        result = weir_cli(
            "checkpoint", "export", self.increment, "--numpy", out
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(
            sorted(os.listdir(out)),
            sorted(n.replace("/", ".") + ".npy" for n in self.arrays),
        )
        for name, array in self.arrays.items():
            loaded = np.load(os.path.join(out, name.replace("/", ".") + ".npy"))
            self.assertEqual(loaded.dtype, array.dtype)
            np.testing.assert_array_equal(loaded, array)

    def test_the_export_does_not_depend_on_the_number_of_ps(self):
        files = []
        for ps in "13":
            run = train(self.folder.name, "run" + ps, ps)
            out = os.path.join(self.folder.name, ps + ".safetensors")
            result = weir_cli("checkpoint", "export", run, "--out", out)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(out, "rb") as file:
                files.append(file.read())
        self.assertEqual(files[0], files[1])

    def test_tables_are_listed_inspected_and_verified(self):
        listed = weir_cli("checkpoint", "list", os.path.dirname(self.increment))
        self.assertRegex(listed.stdout, r"2 tables: \d+ rows, \d+ bytes\n")
        self.assertIn(f", touched since {self.base}\n", listed.stdout)
        seen = weir_cli("checkpoint", "inspect", self.increment)
        self.assertRegex(
            seen.stdout,
            r"tables-1-of-2.safetensors  \d+ bytes  crc32c [0-9a-f]{8}"
            rf"  \d+ rows, touched since {self.base}",
        )
        self.assertRegex(seen.stdout, r"ads +\[rows, 4\] table")
        whole = weir_cli("checkpoint", "verify", self.increment)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertIn("4 files", whole.stdout)
        self.assertIn(f"and so are those of {self.base}", whole.stdout)

    def test_damage_is_found_in_the_file_and_in_what_it_extends(self):
        checkpoints = os.path.join(self.folder.name, "damaged")
        shutil.copytree(os.path.dirname(self.increment), checkpoints)
        increment = os.path.basename(self.increment)
        run = os.path.join(checkpoints, increment)
        for name in (increment, self.base):
            folder = os.path.join(checkpoints, name)
            path = os.path.join(folder, "tables-1-of-2.safetensors")
            with open(path, "r+b") as file:
                file.seek(-5, os.SEEK_END)
                byte = file.read(1)
                file.seek(-5, os.SEEK_END)
                file.write(bytes([byte[0] ^ 1]))
            damaged = weir_cli("checkpoint", "verify", run)
            self.assertEqual(damaged.returncode, 4, damaged.stdout)
            self.assertIn(f"{name}/tables-1-of-2", damaged.stderr)
            with open(path, "r+b") as file:
                file.seek(-5, os.SEEK_END)
                file.write(byte)
        self.assertEqual(weir_cli("checkpoint", "verify", run).returncode, 0)


if __name__ == "__main__":
    unittest.main()
