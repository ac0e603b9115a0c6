"""Curves of a job as TensorBoard's own server shows them.

WEIR_TENSORBOARD_TOOLS is a virtual environment of deploy/tensorboard_tools.txt,
whose Python runs this file with tests/client/python and tests/support in
PYTHONPATH; `./weir test --full` makes it.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

import numpy as np

from free_ports import free_port
from safetensors_file import read_safetensors

JOB = """
name: "digits" seed: 3
model {
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 16 } }
  layer { name: "relu" relu {} }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 1000 } } }
evaluation { source { digits { count: 200 stream: 1 } } }
train {
  batch_size: 16 log_every_steps: 20 steps: 400 histograms_every_steps: 67
}
optimizer { adam {} }
schedule { learning_rate: 0.002 }
update { sync { contributions: 2 } }
checkpoint { keep: 9 }
"""
BIN_DIR = os.path.abspath(os.environ.get("WEIR_BIN_DIR", "."))
TOOLS = os.environ.get("WEIR_TENSORBOARD_TOOLS", "")
DEADLINE_S = 120


@unittest.skipUnless(TOOLS, "no WEIR_TENSORBOARD_TOOLS: ./weir test --full")
class TensorBoardTest(unittest.TestCase):
    """One job, which was resumed, and one server."""

    @classmethod
    def setUpClass(cls):
        """Trains, resumes, and starts the server."""
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir_board_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        (cls.folder / "digits.textproto").write_text(JOB)
        for words in (["--set=train.steps=200"], ["--resume"]):
            done = subprocess.run(
                [f"{BIN_DIR}/deploy/cli/weir_cli", "train"]
                + ["digits.textproto", "--workdir=run", "--ps=2"]
                + ["--workers=2", *words],
                env={**os.environ, "WEIR_BIN_DIR": BIN_DIR},
                cwd=cls.folder,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
            if done.returncode != 0:
                raise AssertionError(done.stderr)
        port = free_port()
        cls.url = f"http://127.0.0.1:{port}/data"
        server = subprocess.Popen(
            [f"{TOOLS}/bin/tensorboard", f"--port={port}"]
            + [f"--logdir={cls.folder / 'run' / 'tensorboard'}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        cls.addClassCleanup(server.wait)
        cls.addClassCleanup(server.kill)
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            try:
                if set(cls.get("runs")) == {"train", "eval"}:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        raise AssertionError("TensorBoard shows no runs")

    @classmethod
    def get(cls, path: str, body: dict | None = None, **query: str):
        """What the server answers, as JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{cls.url}/{path}?{urllib.parse.urlencode(query)}",
            data=data,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.loads(answer.read())

    def curve(self, run: str, tag: str) -> list[tuple[int, float]]:
        """The points of a curve."""
        points = self.get("plugin/scalars/scalars", run=run, tag=tag)
        return [(step, value) for _, step, value in points]

    def lines(self, name: str) -> list[dict]:
        """Of a file of the run."""
        text = (self.folder / "run" / name).read_text()
        return [json.loads(line) for line in text.splitlines()]

    def test_a_curve_is_the_file_through_a_resume(self):
        """Every point once, in order, and none that the resume took back."""
        for run, name in ("train", "train.jsonl"), ("eval", "eval.jsonl"):
            lines = self.lines(name)
            for tag in "loss", "examples":
                self.assertEqual(
                    [(step, round(y, 4)) for step, y in self.curve(run, tag)],
                    [(line["step"], round(line[tag], 4)) for line in lines],
                )
        steps = [line["step"] for line in self.lines("train.jsonl")]
        self.assertEqual(steps[-1], 400)
        self.assertGreater(len(steps), 15)

    def test_every_curve_has_its_tag(self):
        """Those that people expect, and where the time went."""
        tags = self.get("plugin/scalars/tags")
        expected = {
            *["loss", "learning_rate", "examples_per_second"],
            *["staleness/mean", "bytes/pushed", "phases/step_ms"],
            *["phases/pull_wait", "phases/compute"],
        }
        self.assertLessEqual(expected, set(tags["train"]))
        self.assertLessEqual({"loss", "accuracy"}, set(tags["eval"]))

    def histograms(self, tag: str) -> dict[int, np.ndarray]:
        """By step: rows of left edge, right edge and count."""
        found = self.get("plugin/histograms/histograms", run="train", tag=tag)
        return {step: np.array(rows) for _, step, rows in found}

    def test_histograms_are_of_the_values_through_a_resume(self):
        """Step 201 computes from what the first run ended with."""
        exported = self.folder / "model.safetensors"
        subprocess.run(
            [f"{BIN_DIR}/deploy/cli/weir_cli", "checkpoint", "export"]
            + [self.folder / "run" / "checkpoints" / "ckpt-200"]
            + ["--out", exported],
            check=True,
            timeout=DEADLINE_S,
        )
        tensors = read_safetensors(exported)
        tags = set(self.get("plugin/histograms/tags")["train"])
        self.assertEqual(
            tags,
            {
                f"{of}/{name}"
                for of in ("values", "gradients")
                for name in tensors
            },
        )
        for name, values in tensors.items():
            drawn = self.histograms(f"values/{name}")
            self.assertEqual(list(drawn), [67, 134, 201, 268, 335])
            counts, edges = np.histogram(values.astype(np.float64), bins=30)
            np.testing.assert_allclose(drawn[201][:, 0], edges[:-1])
            np.testing.assert_allclose(drawn[201][:, 1], edges[1:])
            np.testing.assert_array_equal(drawn[201][:, 2], counts)
            for rows in self.histograms(f"gradients/{name}").values():
                self.assertEqual(rows[:, 2].sum(), values.size)

    def test_text_hyperparameters_and_charts(self):
        """Of the job, by their plug-ins."""
        texts = self.get("plugin/text/text", run="train", tag="job")
        self.assertEqual(len(texts), 2)  # of each start
        for entry, steps in zip(texts, ("200", "400"), strict=True):
            self.assertIn("digits", entry["text"])
            self.assertIn(steps, entry["text"])
        groups = self.get(
            "plugin/hparams/session_groups",
            body={
                "experimentName": "",
                "allowedStatuses": [
                    *["STATUS_SUCCESS", "STATUS_UNKNOWN"],
                    *["STATUS_FAILURE", "STATUS_RUNNING"],
                ],
                "colParams": [],
                "startIndex": 0,
                "sliceSize": 10,
            },
        )["sessionGroups"]
        self.assertEqual(len(groups), 1)
        hparams = groups[0]["hparams"]
        self.assertEqual(hparams["train.batch_size"], 16)
        self.assertAlmostEqual(hparams["schedule.learning_rate"], 0.002)
        self.assertEqual(hparams["ps"], 2)
        layout = self.get("plugin/custom_scalars/layout")
        self.assertIn("where the time goes", json.dumps(layout))


if __name__ == "__main__":
    unittest.main(verbosity=2)
