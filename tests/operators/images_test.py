"""Pods whose data or program comes in an image that others made.

A bucket that `aws` copies, and a program built by what `--containerfile` wrote.
No registry is asked: an image of Python made of Debian's packages stands for
the one that both begin with. WEIR_IMAGE is an archive that `./weir image` made,
WEIR_WHEEL what `./weir wheel` made, and WEIR_S3_TOOLS a virtual environment of
deploy/s3_tools.txt, whose Python runs this file; `./weir test --full` makes
them.
"""

import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import unittest

import pods
import s3_server
from pods_test import IMAGE, Run

WHEEL = os.environ.get("WEIR_WHEEL", "")
BASE = "localhost/weir-test-python:1"
COPY = "localhost/weir-test-aws:1"
PROGRAM = "localhost/weir-test-program:1"
JOB = """
name: "digits" seed: 3
model {
  layer { name: "hidden" dense { units: 8 } }
  layer { name: "relu" relu {} }
  layer { name: "logits" dense { units: 2 } }
  loss { softmax_cross_entropy {} }
}
data { train { csv { path: "train.csv"
  column { name: "a" index: 1 numeric {} } label_column: 0 } } }
train { batch_size: 16 steps: 100 }
optimizer { sgd {} }
schedule { learning_rate: 0.1 }
update { sync { contributions: 2 } }
"""
# The model of each worker's pushes is their number.
PUSHES = 50
TRAIN = f"""
import numpy as np
import weir

with weir.connect() as client:
    zero = np.zeros(1, np.float32)
    client.declare({{"count": zero}}, optimizer=weir.SGD(lr=1.0))
    for _ in range(client.pushes, {PUSHES}):
        client.push_pull({{"count": zero - 1}})
"""


def own_address() -> str:
    """An address of this machine that containers can reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # which sends nothing
        return probe.getsockname()[0]


class ImagesTest(unittest.TestCase):
    """Each test ends with the job done."""

    @classmethod
    def setUpClass(cls):
        """Makes the image of Python."""
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir_images_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.environment = pods.podman_environment(cls.folder)
        base = cls.folder / "base.tar"
        cls.run_command(
            *["mmdebstrap", "--variant=minbase"],
            "--include=python3,python3-numpy,python3-pip",
            # As in Python's own image.
            '--customize-hook=ln -s python3 "$1/usr/bin/python"',
            '--customize-hook=rm "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',
            *["bookworm", str(base)],
        )
        cls.addClassCleanup(
            cls.run_command,
            *["podman", "rmi", "--force", "--ignore", PROGRAM, COPY, BASE],
        )
        cls.run_command("podman", "import", str(base), BASE)

    @classmethod
    def run_command(cls, *words: str) -> None:
        """Runs a command that has to end well."""
        done = subprocess.run(
            words,
            cwd=cls.folder,
            env=cls.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.stdout}{done.stderr}")

    def build(self, image: str, folder: pathlib.Path) -> None:
        """Builds the Containerfile of a folder, which may not call anybody."""
        self.run_command(
            *["podman", "build", "--network=none", "--from", BASE],
            *["--tag", image],
            *["--file", str(folder / "Containerfile"), str(folder)],
        )

    def finish(self, run: Run) -> None:
        """To the end of the job, with all codes 0."""
        run.pods.start()
        run.pods.run_to_end()
        self.assertIsNone(run.pods.failed)
        self.assertEqual(set(map(tuple, run.pods.codes.values())), {(0,)})

    def test_a_bucket_is_copied_before_a_task_starts(self):
        """By `aws`, with the address, region and keys of the store."""
        folder = self.folder / "copy"
        tools = next(pathlib.Path(s3_server.TOOLS).glob("lib/*/site-packages"))
        shutil.copytree(tools, folder / "packages")
        (folder / "Containerfile").write_text(
            f"FROM {BASE}\nCOPY packages /opt/packages\n"
            "ENV PYTHONPATH=/opt/packages\n"
            "RUN printf '#!/usr/bin/python3\\nimport awscli.clidriver, sys\\n"
            "sys.exit(awscli.clidriver.main())\\n' > /usr/local/bin/aws "
            "&& chmod 755 /usr/local/bin/aws\n"
        )
        self.build(COPY, folder)
        with s3_server.MotoServer(self.folder, own_address()) as server:
            lines = "".join(f"{row % 2},{row % 7}\n" for row in range(200))
            server.s3.put_object(
                Bucket=s3_server.BUCKET, Key="data/train.csv", Body=lines
            )
            flags = [
                f"--data_bucket=s3://{s3_server.BUCKET}/data",
                f"--data_copy_image={COPY}",
                f"--store_endpoint={server.endpoint}",
                f"--store_region={s3_server.REGION}",
                "--store_secret=keys",
            ]
            keys = (
                f"[default]\naws_access_key_id = {server.access_key}\n"
                f"aws_secret_access_key = {server.secret_key}\n"
            )
            with Run(JOB, *flags, secrets={"keys": {"credentials": keys}}) as r:
                self.finish(r)

    def test_a_program_runs_in_the_image_of_its_containerfile(self):
        """Workers in that image; ps and chief in Weir's."""
        folder = self.folder / "program"
        folder.mkdir()
        shutil.copy(WHEEL, folder)
        (folder / "train.py").write_text(TRAIN)
        flags = [
            "--name=digits",
            f"--image={PROGRAM}",
            f"--containerfile={folder}/Containerfile",
            *["--", "python", "train.py"],
        ]
        with Run("", *flags) as run:
            self.build(PROGRAM, folder)
            self.finish(run)
            count = struct.unpack("<f", run.model()[-4:])
            self.assertEqual(count, (2 * PUSHES,))


if __name__ == "__main__":
    why = pods.podman_missing()
    if not why and not (IMAGE and WHEEL):
        why = "WEIR_IMAGE and WEIR_WHEEL name what ./weir made"
    if why:
        raise SystemExit(f"podman never ran: {why}")
    unittest.main(verbosity=2)
