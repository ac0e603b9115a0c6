"""A job that `weir render compose` prints, run by podman-compose.

Killed, stopped and started again, it ends with the bytes of `weir train`.
WEIR_IMAGE is an archive that `./weir image` made, and WEIR_OPERATOR_TOOLS an
environment with podman-compose; `./weir test --full` makes both.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

import pods
from pods_test import IMAGE, JOB, weir

COMPOSE = f"{os.environ.get('WEIR_OPERATOR_TOOLS', '')}/bin/podman-compose"
STEPS = 4000  # podman takes half a second to say how a container is
TASKS = {"ps-0", "ps-1", "chief-0", "worker-0", "worker-1"}


def model(run: pathlib.Path) -> bytes:
    """The bytes of the model that a run has trained."""
    name = (run / "DONE").read_text().strip()
    out = run.parent / f"{run.name}.safetensors"
    checkpoint = run / "checkpoints" / name
    done = weir("checkpoint", "export", str(checkpoint), "--out", str(out))
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return out.read_bytes()


class ComposeTest(unittest.TestCase):
    """The containers of one job."""

    def setUp(self):
        """Renders the job."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir_compose_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.environment = pods.podman_environment(self.folder)
        self.environment["WEIR_SECRET"] = weir("secret").stdout.strip()
        self.environment["PATH"] = f"/usr/bin:{os.environ['PATH']}"
        (self.folder / "digits.textproto").write_text(
            JOB.replace("steps: 600", f"steps: {STEPS}").replace(
                "every_steps: 100", "every_steps: 500"
            )
        )
        os.chdir(self.folder)
        self.addCleanup(os.chdir, "/")
        file = weir(
            *["render", "compose", "digits.textproto", "--ps=2", "--workers=2"],
            f"--name=digits-{os.getpid()}",
            "--out=compose.yaml",
        )
        self.assertEqual(file.returncode, 0, file.stderr)
        self.run_command("podman", "load", "-i", IMAGE)

    def run_command(self, *words: str) -> str:
        """Runs a command that has to end well; returns what it printed."""
        done = subprocess.run(
            words,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, f"{words}: {done.stderr}")
        return done.stdout.strip()

    def compose(self, *words: str) -> str:
        """Runs podman-compose."""
        return self.run_command(COMPOSE, "-f", "compose.yaml", *words)

    def states(self) -> dict[str, dict]:
        """What podman says about each task's container."""
        label = f"io.podman.compose.project=digits-{os.getpid()}"
        numbers = self.run_command(
            *["podman", "ps", "-aq", "--filter", f"label={label}"]
        ).split()
        if not numbers:
            return {}
        return {
            container["Config"]["Labels"][
                "com.docker.compose.service"
            ]: container
            for container in json.loads(
                self.run_command("podman", "inspect", *numbers)
            )
        }

    def claim(self) -> pathlib.Path:
        """Where this machine has the volume of the run."""
        name = f"digits-{os.getpid()}_run"
        shown = self.run_command("podman", "volume", "inspect", name)
        return pathlib.Path(json.loads(shown)[0]["Mountpoint"])

    def wait_for_steps(self, steps: int) -> None:
        """Waits until the job has made so many steps more."""
        curve = self.claim() / "train.jsonl"

        def step():
            lines = curve.read_text().splitlines() if curve.exists() else []
            return int(json.loads(lines[-1])["step"]) if lines else 0

        before = step()
        pods.wait_until(lambda: step() >= before + steps, f"{steps} steps on")

    def show(self) -> None:
        """Prints the tasks' last words."""
        for task, container in sorted(self.states().items()):
            print(f"--- {task} {container['State']['Status']}")
            words = ["podman", "logs", "--tail=15", container["Id"]]
            subprocess.run(words, env=self.environment, check=False)

    def test_a_job_is_killed_and_stopped_and_done(self):
        """As by `up`, crashes, `stop`, `up`, `down`."""
        trained = weir(
            *["train", "digits.textproto", "--workdir=alone", "--workers=2"]
        )
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.addCleanup(self.compose, "down", "-v")
        try:
            self.kill_and_stop()
        except BaseException:
            self.show()
            raise

    def kill_and_stop(self) -> None:
        """From the first `up` to the end of the job."""
        self.compose("up", "-d")
        for task in "ps-0", "chief-0", "worker-1":
            self.wait_for_steps(50)
            main = self.states()[task]["State"]["Pid"]
            self.assertGreater(main, 0, f"{task} has ended")
            os.kill(pods.program_below(main, task), signal.SIGKILL)
        self.wait_for_steps(50)
        self.compose("stop")
        stopped = self.states()
        self.assertEqual(set(stopped), TASKS)
        for task, container in stopped.items():
            self.assertEqual(container["State"]["Status"], "exited", task)
            self.assertIn(container["State"]["ExitCode"], (138, 143), task)
        saved = self.claim() / "checkpoints" / f"ckpt-{STEPS}"
        self.assertFalse(saved.exists(), "the job was done before it stopped")
        self.compose("up", "-d")
        pods.wait_until(
            lambda: all(
                container["State"]["Status"] == "exited"
                for container in self.states().values()
            ),
            "ended: all containers",
        )
        for task, container in self.states().items():
            self.assertEqual(container["State"]["ExitCode"], 0, task)
        shutil.copytree(self.claim(), "composed")
        self.assertEqual(
            model(self.folder / "composed"), model(self.folder / "alone")
        )


if __name__ == "__main__":
    if why := pods.podman_missing():
        raise SystemExit(f"podman never ran: {why}")
    unittest.main(verbosity=2)
