"""Jobs whose checkpoints are in an object store that others wrote (moto).

Each has to end with the bytes of a job on a disk. WEIR_S3_TOOLS is a virtual
environment with deploy/s3_tools.txt, whose Python runs this file.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import s3_server

JOB = """
name: "digits" seed: 3
model {
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 8 } }
  layer { name: "relu" relu {} }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 2000 } } }
evaluation { source { digits { count: 200 stream: 1 } } }
train { batch_size: 16 log_every_steps: 5 steps: 2000 }
optimizer { adam {} }
schedule { learning_rate: 0.002 }
update { sync { contributions: 4 } }
limits { block_elements: 1024 }
checkpoint { every_steps: 200 keep: 3 }
"""
LIBSVM_JOB = """
name: "libsvm" seed: 5
model {
  layer { name: "logits" dense { units: 2 } }
  loss { softmax_cross_entropy {} }
}
data { train { libsvm { path: "train.libsvm" feature_count: 12 } } }
train { batch_size: 16 steps: 50 }
optimizer { sgd {} }
schedule { learning_rate: 0.1 }
update { sync { contributions: 2 } }
"""
TABLE_JOB = """
name: "table" seed: 1
table {
  name: "weights" dim: 1
  optimizer { ftrl {} } schedule { learning_rate: 0.1 }
  initializer { zeros {} }
}
model {
  layer { name: "weights" embedding_bag { table: "weights" } }
  layer { name: "flat" flatten {} }
  layer { name: "logit" dense { units: 1 } }
  loss { sigmoid_cross_entropy {} }
}
data { train { click_log { count: 90000 numeric: 2 categorical: 8
                           ids_per_feature: 20000 } } }
train { batch_size: 256 steps: 1000 }
optimizer { ftrl {} }
schedule { learning_rate: 0.1 }
update { sync { contributions: 2 } }
checkpoint { every_steps: 50 keep: 5 }
"""
STEPS = 2000
# Each step adds a sixteenth to each of three parameters.
SCRIPT = """
import torch
import weir.torch as weir

weir.init()
model = torch.nn.Module()
model.p = torch.nn.Parameter(torch.zeros(3))
optimizer = weir.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.0625), model=model, mode="sync")
for step in range(optimizer.pushes, 32):
    optimizer.zero_grad()
    (-model.p.sum()).backward()
    optimizer.step()
"""
EVALUATOR = """
import weir
for checkpoint in weir.checkpoints(follow=True):
    p = checkpoint.tensors()["p"]
    print("evaluated", checkpoint.step, p.tolist(), flush=True)
"""
BIN_DIR = os.path.abspath(os.environ.get("WEIR_BIN_DIR", "."))
CONTRACT = os.environ.get("WEIR_S3_CONTRACT", "")
PACKAGE = os.environ.get("WEIR_S3_PACKAGE", "")
DEADLINE_S = 120


def wait_until(condition, what: str) -> None:
    """Polls until `condition()` holds; names `what` if it never does."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"after {DEADLINE_S} s: not {what}")
        time.sleep(0.02)


class S3Test(unittest.TestCase):
    """One server for all, and a prefix for each job."""

    folder: pathlib.Path
    server: s3_server.MotoServer
    expected: bytes

    @classmethod
    def setUpClass(cls):
        """Starts the server, and trains on a disk."""
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir_s3_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.server = cls.enterClassContext(s3_server.MotoServer(cls.folder))
        (cls.folder / "digits.textproto").write_text(JOB)
        trained = cls.weir("train", "digits.textproto", "--workdir=disk")
        if trained.returncode != 0:
            raise AssertionError(trained.stderr)
        cls.expected = cls.model("disk")

    @classmethod
    def environment(cls, **more: str) -> dict[str, str]:
        """Of Weir's programs."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("AWS_")
        }
        return {
            **inherited,
            **cls.server.environment(),
            "WEIR_BIN_DIR": BIN_DIR,
            **more,
        }

    @classmethod
    def weir(cls, *words: str, **more: str) -> subprocess.CompletedProcess:
        """Runs the command line in the test's folder."""
        return subprocess.run(
            [f"{BIN_DIR}/deploy/cli/weir_cli", *words],
            env=cls.environment(**more),
            cwd=cls.folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    @classmethod
    def model(cls, run: str, steps: int = STEPS) -> bytes:
        """The bytes of the trained model."""
        out = cls.folder / "model.safetensors"
        done = cls.weir(
            *["checkpoint", "export", f"{run}/checkpoints/ckpt-{steps}"],
            f"--out={out}",
        )
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return out.read_bytes()

    def keys(self, prefix: str) -> list[str]:
        """The keys of the objects below a prefix, without it."""
        pages = self.server.s3.get_paginator("list_objects_v2").paginate(
            Bucket=s3_server.BUCKET, Prefix=prefix
        )
        return [
            entry["Key"].removeprefix(prefix)
            for page in pages
            for entry in page.get("Contents", [])
        ]

    def url(self, prefix: str) -> str:
        """Of a job's place."""
        return f"s3://{s3_server.BUCKET}/{prefix}"

    @unittest.skipIf(not CONTRACT, "WEIR_S3_CONTRACT names no program")
    def test_the_server_keeps_the_contract(self):
        """tests/common/objects/object_store_test.cc, on this server."""
        done = subprocess.run(
            [CONTRACT, "--gtest_filter=S3Server.*"],
            env=self.environment(WEIR_TEST_S3=self.url("contract")),
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"PASSED  \] 1\d tests")

    def test_a_job_trains_and_its_checkpoints_are_used(self):
        """With all roles: the bytes of a disk; every command takes a URL."""
        place = self.url("runs/all")
        trained = self.weir(
            *["train", "digits.textproto", "--workdir=all", "--chief"],
            *["--ps=2", "--workers=2", f"--checkpoints={place}"],
        )
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertEqual(self.model(place), self.expected)
        # keep: 3. Of an attempt that failed nothing is left but its name.
        of_each: dict[str, set[str]] = {}
        for key in self.keys("runs/all/checkpoints/ckpt-"):
            name, _, file = key.partition("/")
            of_each.setdefault(name, set()).add(file)
        whole = [
            files for files in of_each.values() if "manifest.json" in files
        ]
        self.assertIn(len(whole), (1, 2, 3))
        for files in of_each.values():
            self.assertTrue(files in whole or files == {".directory"}, files)
        uploads = self.server.s3.list_multipart_uploads(Bucket=s3_server.BUCKET)
        self.assertEqual(uploads.get("Uploads", []), [])
        newest = f"{place}/checkpoints/ckpt-{STEPS}"
        shown = self.weir("checkpoint", "list", place)
        self.assertEqual(len(shown.stdout.splitlines()), len(whole))
        for words in (["inspect", newest], ["verify", newest]):
            done = self.weir("checkpoint", *words)
            self.assertEqual(done.returncode, 0, done.stderr)
        on_disk, in_store = (
            self.weir("evaluate", "digits.textproto", f"--checkpoint={of}")
            for of in (f"disk/checkpoints/ckpt-{STEPS}", newest)
        )
        self.assertEqual(in_store.returncode, 0, in_store.stderr)
        self.assertEqual(in_store.stdout, on_disk.stdout)
        # Its own evaluator has seen the last one, and the curve is whole.
        summary = (self.folder / "all" / "summary.json").read_text()
        self.assertRegex(summary, r'"accuracy": 0\.\d+')
        self.assertFalse((self.folder / "all" / "checkpoints").exists())

    def test_a_job_is_killed_and_resumed_on_other_counts(self):
        """From the newest checkpoint, with another local directory."""
        place = self.url("runs/killed")
        words = ["train", "digits.textproto", f"--checkpoints={place}"]
        job = subprocess.Popen(
            [f"{BIN_DIR}/deploy/cli/weir_cli", *words, "--workdir=first"]
            + ["--set=train.steps=1000000", "--ps=2", "--workers=2"],
            env=self.environment(),
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        numbers = "runs/killed/checkpoints/numbers/"
        wait_until(lambda: len(self.keys(numbers)) >= 2, "two checkpoints")
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        keys = self.keys("runs/killed/")
        self.assertNotIn("DONE", keys)
        # However far it came, the resumed one has a little more to do.
        saved = re.findall(r"ckpt-(\d+)/manifest", " ".join(keys))
        steps = max(int(step) for step in saved) + 200
        end = f"--set=train.steps={steps}"
        resumed = self.weir(
            *[*words, "--workdir=second", "--resume", end],
            *["--ps=3", "--workers=1"],
        )
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        alone = self.weir("train", "digits.textproto", "--workdir=whole", end)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        self.assertEqual(self.model(place, steps), self.model("whole", steps))
        self.assertIn("DONE", self.keys("runs/killed/"))

    def test_of_two_chiefs_one_goes_on(self):
        """The other ends with 5, and the checkpoints are those of one job. Its
        launcher looks on until the job is done."""
        place = self.url("runs/two")
        words = ["train", "digits.textproto", "--set=train.steps=8000"]
        alone = self.weir(*words, "--workdir=alone")
        self.assertEqual(alone.returncode, 0, alone.stderr)
        words.append(f"--checkpoints={place}")
        numbers = "runs/two/checkpoints/numbers/"
        jobs = []
        for name in "one", "other":
            if jobs:
                wait_until(lambda: self.keys(numbers), "a checkpoint")
            log = (self.folder / f"{name}.log").open("wb")
            self.addCleanup(log.close)
            jobs.append(
                subprocess.Popen(
                    [f"{BIN_DIR}/deploy/cli/weir_cli", *words, "--resume"]
                    + [f"--workdir={name}", "--chief"],
                    env=self.environment(),
                    cwd=self.folder,
                    stdout=log,
                    stderr=log,
                )
            )
        for job in jobs:
            self.assertIn(job.wait(DEADLINE_S), (0, 5))
        refused = [
            name
            for name in ("one", "other")
            if "another chief has committed a checkpoint"
            in (self.folder / name / "logs/chief-0.log").read_text()
        ]
        self.assertEqual(len(refused), 1)
        said = (self.folder / f"{refused[0]}.log").read_text()
        self.assertIn("chief/0 failed with code 5", said)
        self.assertEqual(self.model(place, 8000), self.model("alone", 8000))

    def test_tables_and_what_they_gained(self):
        """Increments and their base, resumed by another number of ps."""
        (self.folder / "table.textproto").write_text(TABLE_JOB)
        url = self.url("runs/table")
        models = set()
        for place, run, more in (
            ("table-disk", "table-disk", []),
            (url, "table-store", [f"--checkpoints={url}"]),
        ):
            for words in (
                ["--set=train.steps=500", "--ps=2", "--workers=2"],
                ["--ps=3", "--workers=1", "--resume"],
            ):
                done = self.weir(
                    *["train", "table.textproto", f"--workdir={run}"],
                    *[*more, *words],
                )
                self.assertEqual(done.returncode, 0, done.stderr)
            models.add(self.model(place, 1000))
            shown = self.weir("checkpoint", "list", place).stdout
            self.assertIn("touched since ckpt-", shown)
        self.assertEqual(len(models), 1)

    def test_data_is_read_from_the_store(self):
        """The bytes of a file; the second run reads the copy on the disk."""
        lines = [f"{i % 2} {i % 7 + 1}:1 {i % 5 + 8}:0.5" for i in range(400)]
        data = self.folder / "data"
        data.mkdir()
        (data / "train.libsvm").write_text("\n".join(lines))
        self.server.s3.upload_file(
            str(data / "train.libsvm"), s3_server.BUCKET, "data/train.libsvm"
        )
        (self.folder / "libsvm.textproto").write_text(LIBSVM_JOB)
        words = ["train", "libsvm.textproto", "--workers=2"]
        trained = [
            self.weir(*words, f"--data_dir={place}", f"--workdir={run}", **more)
            for place, run, more in (
                ("data", "data-disk", {}),
                (self.url("data"), "data-store", {}),
                (self.url("data/"), "data-first", {"WEIR_DATA_CACHE": "kept"}),
                (self.url("data/"), "data-again", {"WEIR_DATA_CACHE": "kept"}),
            )
        ]
        for done in trained:
            self.assertEqual(done.returncode, 0, done.stderr)
        models = {
            self.model(f"data-{run}", 50)
            for run in ("disk", "store", "first", "again")
        }
        self.assertEqual(len(models), 1)
        (copy,) = (self.folder / "kept").iterdir()
        self.assertEqual(copy.read_text(), "\n".join(lines))
        gone = self.weir(
            *words, f"--data_dir={self.url('nowhere')}", "--workdir=data-gone"
        )
        self.assertEqual(gone.returncode, 3, gone.stderr)
        self.assertIn("nowhere/train.libsvm", gone.stderr + gone.stdout)

    @unittest.skipIf(not PACKAGE, "WEIR_S3_PACKAGE names no Python package")
    def test_a_script_and_its_evaluator(self):
        """Of `weir run`, by the Python SDK."""
        place = self.url("runs/script")
        for name, text in (("train.py", SCRIPT), ("evaluate.py", EVALUATOR)):
            (self.folder / name).write_text(text)
        done = self.weir(
            *["run", f"--checkpoints={place}", "--workdir=script", "--chief"],
            *["--evaluator", "/usr/bin/python3 -B evaluate.py"],
            *["--", "/usr/bin/python3", "-B", "train.py"],
            PYTHONPATH=PACKAGE,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("evaluated 32 [2.0, 2.0, 2.0]", done.stdout + done.stderr)
        self.assertIn("DONE", self.keys("runs/script/"))

    def test_what_is_wrong_is_said_before_training(self):
        """One line each, and its code."""
        self.server.s3.put_object(
            Bucket=s3_server.BUCKET, Key="else/a.csv", Body=b"1,2"
        )
        cases = [
            (
                "s3://nobody-made-it/x",
                {},
                2,
                "make the bucket 'nobody-made-it'",
            ),
            (self.url("a"), {"AWS_SECRET_ACCESS_KEY": "wrong"}, 6, "keys"),
            (self.url("b"), {"AWS_ACCESS_KEY_ID": "unknown"}, 6, "keys"),
            ("s3://Big", {}, 2, "bucket 'Big'"),
            (self.url("else"), {}, 2, "holds 'a.csv' and no run"),
            (self.url("c"), {"AWS_ENDPOINT_URL": "host"}, 2, "endpoint 'host'"),
        ]
        for number, (place, variables, code, message) in enumerate(cases):
            with self.subTest(place=place, variables=variables):
                done = self.weir(
                    *["train", "digits.textproto", f"--checkpoints={place}"],
                    f"--workdir=wrong-{number}",
                    **variables,
                )
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(message, done.stderr)
                self.assertNotIn("step", done.stdout.split("\n")[0])

    def test_no_key_is_in_what_is_written(self):
        """Neither in logs and files nor in the store."""
        place = self.url("runs/secret")
        done = self.weir(
            *["train", "digits.textproto", f"--checkpoints={place}"],
            *["--workdir=secret", "--set=train.steps=50"],
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        secret = self.server.secret_key
        texts = [done.stdout, done.stderr]
        texts += [
            path.read_bytes().decode(errors="replace")
            for path in (self.folder / "secret").rglob("*")
            if path.is_file()
        ]
        for key in self.keys("runs/secret/"):
            body = self.server.s3.get_object(
                Bucket=s3_server.BUCKET, Key=f"runs/secret/{key}"
            )["Body"]
            texts.append(body.read().decode(errors="replace"))
        self.assertGreater(len(texts), 6)
        for text in texts:
            self.assertNotIn(secret, text)
            self.assertIsNone(re.search("Signature=", text))


if __name__ == "__main__":
    unittest.main(verbosity=2)
