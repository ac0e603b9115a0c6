"""weir.checkpoints, on those of a built-in job."""

import os
import pathlib
import shutil
import tempfile
import threading
import unittest
import unittest.mock

import numpy as np

import weir
from safetensors_file import read_safetensors
from servers import weir_cli

JOB = """
name: "checkpoints" seed: 1
model {
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 40 } }
  layer { name: "act" relu {} }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 500 } } }
train { batch_size: 32 steps: 40 }
optimizer { adam {} }
schedule { learning_rate: 0.01 }
checkpoint { every_steps: 15 }
update { sync { contributions: 1 } }
limits { block_elements: 4096 }
"""


class CheckpointsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.run_dir = os.path.join(cls.folder.name, "run")
        job = os.path.join(cls.folder.name, "job.textproto")
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB)
        cls.followed = []

        def follow():
            for checkpoint in weir.checkpoints(
                cls.run_dir, follow=True, every=0.05
            ):
                cls.followed.append(checkpoint.step)

        cls.follower = threading.Thread(target=follow, daemon=True)
        cls.follower.start()  # before anything is there
        weir_cli(
            "train",
            job,
            "--ps",
            "3",
            "--device",
            "cpu",
            "--workdir",
            cls.run_dir,
            check=True,
        )

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_they_are_followed_to_the_end_of_the_run(self):
        self.follower.join(20)
        self.assertFalse(self.follower.is_alive())
        self.assertEqual(self.followed[-1], 40)
        self.assertEqual(self.followed, sorted(set(self.followed)))
        listed = list(weir.checkpoints(self.run_dir))
        inner = os.path.join(self.run_dir, "checkpoints")
        self.assertEqual(listed, list(weir.checkpoints(inner)))
        self.assertLessEqual({c.step for c in listed}, set(self.followed))

    def test_the_tensors_are_those_of_the_export(self):
        last = list(weir.checkpoints(self.run_dir))[-1]
        out = os.path.join(self.folder.name, "model.safetensors")
        weir_cli("checkpoint", "export", last.path, "--out", out, check=True)
        exported, tensors = read_safetensors(out), last.tensors()
        self.assertEqual(list(exported), list(tensors))
        for name, value in exported.items():
            np.testing.assert_array_equal(tensors[name], value)
        self.assertEqual(tensors["hidden/kernel"].shape, (784, 40))

    def test_damage_is_named(self):
        first = next(weir.checkpoints(self.run_dir))
        shard = os.path.join(first.path, "shard-1-of-3.safetensors")
        with open(shard, "r+b") as file:
            file.seek(-5, os.SEEK_END)
            file.write(b"\xff")
        with self.assertRaisesRegex(weir.DataLoss, "shard-1-of-3"):
            first.tensors()

    def test_what_was_taken_away_is_named(self):
        last = list(weir.checkpoints(self.run_dir))[-1]
        for name in "manifest.json", "shard-1-of-3.safetensors":
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, os.path.basename(last.path))
                shutil.copytree(last.path, path)
                os.remove(os.path.join(path, name))
                with self.assertRaisesRegex(weir.DataLoss, name):
                    weir.Checkpoint(last.step, path).tensors()

    def test_there_are_none(self):
        self.assertEqual(list(weir.checkpoints("/nowhere")), [])
        with self.assertRaises(weir.DataLoss):
            weir.Checkpoint(1, "/nowhere/ckpt-1").tensors()

    def test_of_the_run_that_started_the_program(self):
        with unittest.mock.patch.dict(os.environ):
            os.environ.pop("WEIR_CHECKPOINTS", None)
            os.environ.pop("WEIR_WORKDIR", None)
            with self.assertRaisesRegex(weir.InvalidArgument, "WEIR_WORKDIR"):
                next(weir.checkpoints())
            os.environ["WEIR_WORKDIR"] = self.run_dir
            of_run = list(weir.checkpoints(self.run_dir + "/"))
            self.assertEqual(list(weir.checkpoints()), of_run)
            of_path = weir.checkpoints(pathlib.Path(self.run_dir))
            self.assertEqual(list(of_path), of_run)
            os.environ["WEIR_CHECKPOINTS"] = "/nowhere"
            self.assertEqual(list(weir.checkpoints()), [])

    def test_a_store_that_has_no_address_raises(self):
        with unittest.mock.patch.dict(os.environ):
            os.environ["AWS_ENDPOINT_URL_S3"] = "no-address"
            with self.assertRaisesRegex(
                weir.WeirError, "endpoint 'no-address'"
            ):
                next(weir.checkpoints("s3://bucket/run"))


if __name__ == "__main__":
    unittest.main()
