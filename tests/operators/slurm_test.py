"""Jobs that `weir render slurm` prints, on a real Slurm of four nodes.

Trained, requeued, with a program killed, with one that fails for good, and two
jobs on one node. Counted as skipped where Slurm is not installed
(deploy/operator_packages.txt), or without root.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import slurm

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
train { batch_size: 16 log_every_steps: 5 steps: 600 }
optimizer { adam {} }
schedule { learning_rate: 0.002 }
update { sync { contributions: 4 } }
limits { block_elements: 1024 }
checkpoint { every_steps: 1000000 }
"""
# What each task's shell reads first: that of rank 3 is as if it were launched a
# second after another task has failed.
LATE = """
if [ "$SLURM_PROCID" = 3 ]; then
  trap '' TERM
  until [ -e "$run/.failed" ]; do sleep 0.1; done
  sleep 1
  trap - TERM
fi
"""
STEPS = 600
SOON = STEPS // 10  # long before the end, also on a fast machine
BIN_DIR = os.path.abspath(os.environ.get("WEIR_BIN_DIR", "."))
WEIR = f"{BIN_DIR}/deploy/cli/weir_cli"
WHY_NOT = slurm.why_not()


def weir(*words: str) -> str:
    """Runs the command line, which has to end well."""
    done = subprocess.run(
        [WEIR, *words],
        env=dict(os.environ, WEIR_BIN_DIR=BIN_DIR),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


class Run:
    """One job with a folder of its own, from which it is submitted."""

    def __init__(
        self,
        cluster: slurm.Slurm,
        name: str,
        *flags: str,
        tasks: tuple[str, ...] = ("--ps=2", "--workers=2"),
        where: str = "--nodes=4",
    ):
        """Renders and submits the job; `where` is an option of sbatch."""
        self.folder = cluster.folder / name
        self.folder.mkdir()
        (self.folder / "digits.textproto").write_text(JOB)
        self.run = self.folder / "runs" / "digits"
        self.slurm = cluster
        os.chdir(self.folder)
        script = weir(
            "render",
            "slurm",
            "digits.textproto",
            *tasks,
            *flags,
        )
        self.number = cluster.submit(script, self.folder, where)

    def __enter__(self):
        """Nothing is left to do."""
        return self

    def __exit__(self, kind, *_):
        """Shows the tasks' words after a failure."""
        if kind is not None:
            print(f"--- job {self.number}: {self.slurm.job(self.number)}")
            print("\n".join(self.output().splitlines()[-60:]))

    def output(self) -> str:
        """What all tasks have printed."""
        path = self.folder / "slurm.out"
        return path.read_text() if path.exists() else ""

    def step(self) -> int:
        """The last step of the curve."""
        path = self.run / "train.jsonl"
        text = path.read_text() if path.exists() else ""
        steps = re.findall(r'"step": ?(\d+)', text)
        return int(steps[-1]) if steps else 0

    def wait_for_step(self, step: int) -> int:
        """Waits until the job has come so far; returns where it is."""
        slurm.wait_until(lambda: self.step() >= step, f"at step {step}")
        return self.step()

    def saved_steps(self) -> list[int]:
        """The steps of all committed checkpoints."""
        found = self.run.glob("checkpoints/ckpt-*/manifest.json")
        return sorted(int(path.parent.name.split("-")[1]) for path in found)

    def program(self, name: str) -> slurm.Process:
        """The last program of this name that `weir task` runs."""
        found = []

        def find():
            found[:] = slurm.Process.of_program(name)
            return bool(found)

        slurm.wait_until(find, f"a process of {name}")
        return found[-1]

    def model(self) -> bytes:
        """The bytes of the trained model."""
        name = (self.run / "DONE").read_text().strip()
        out = self.folder / "model.safetensors"
        checkpoint = self.run / "checkpoints" / name
        weir("checkpoint", "export", str(checkpoint), "--out", str(out))
        return out.read_bytes()


@unittest.skipIf(WHY_NOT, f"Slurm never ran: {WHY_NOT}")
class SlurmTest(unittest.TestCase):
    """What the issue of a cluster has to show about Slurm."""

    undisturbed: dict[str, str]
    saved_steps: list[int]
    expected: bytes
    cluster: slurm.Slurm

    @classmethod
    def setUpClass(cls):
        """Starts Slurm, and trains undisturbed."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="weir_slurm_"))
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.addClassCleanup(os.chdir, "/")
        folder.chmod(0o755)
        programs = folder / "bin"
        programs.mkdir()
        weir_script = programs / "weir"
        weir_script.write_text(
            f'#!/bin/sh\nWEIR_BIN_DIR={BIN_DIR} exec {WEIR} "$@"\n'
        )
        weir_script.chmod(0o755)
        cls.cluster = cls.enterClassContext(slurm.Slurm(folder, str(programs)))
        with Run(cls.cluster, "undisturbed") as run:
            cls.undisturbed = cls.cluster.wait_for_end(run.number)
            cls.saved_steps = run.saved_steps()
            cls.expected = run.model()

    def finish(self, run: Run) -> dict[str, str]:
        """The job is done, and has the bits of `expected`."""
        job = self.cluster.wait_for_end(run.number)
        self.assertEqual(job["JobState"], "COMPLETED")
        self.assertEqual(job["ExitCode"], "0:0")
        self.assertEqual(run.model(), self.expected)
        return job

    def test_a_job_trains_on_four_nodes(self):
        """And its one checkpoint is that of the end."""
        self.assertEqual(self.undisturbed["JobState"], "COMPLETED")
        self.assertEqual(self.undisturbed["ExitCode"], "0:0")
        self.assertEqual(self.undisturbed["NumNodes"], "4")
        self.assertEqual(self.saved_steps, [STEPS])

    def test_a_requeue_goes_on_from_where_it_stopped(self):
        """The only checkpoint is that of the requeue's SIGTERM."""
        with Run(self.cluster, "requeue") as run:
            before = run.wait_for_step(SOON)
            self.cluster.requeue(run.number)
            (saved,) = run.saved_steps()
            self.assertGreaterEqual(saved, before)
            self.assertLess(saved, STEPS)
            self.assertEqual(self.finish(run)["Restarts"], "1")
            self.assertIn(f"ckpt-{saved}", run.output())
            print(f"requeued at step {before}, saved step {saved}")

    def test_a_killed_program_is_started_again_in_place(self):
        """Slurm sees nothing of it."""
        for role in "ps", "chief", "worker":
            flags = ["--set", "checkpoint.every_steps=50"]
            with self.subTest(role), Run(self.cluster, role, *flags) as run:
                run.wait_for_step(SOON)
                victim = run.program(f"weir_{role}")
                os.kill(victim.pid, signal.SIGKILL)
                slurm.wait_until(
                    lambda run=run, role=role, victim=victim: any(
                        process.parent == victim.parent
                        and process.pid != victim.pid
                        for process in slurm.Process.of_program(f"weir_{role}")
                    ),
                    f"started again: {role}",
                )
                self.assertEqual(self.finish(run)["Restarts"], "0")

    def test_two_jobs_share_a_node(self):
        """Their ports lie apart. `scancel` saves both."""
        first, second = (
            Run(
                self.cluster,
                name,
                "--set=train.steps=1000000",
                tasks=("--nochief",),
                where="--nodelist=n0",
            )
            for name in ("first", "second")
        )
        with first, second:
            for run in first, second:
                run.wait_for_step(SOON)
                self.assertEqual(run.saved_steps(), [])
            for run in first, second:
                self.cluster.cancel(run.number)
            for run in first, second:
                job = self.cluster.wait_for_end(run.number)
                self.assertEqual(job["JobState"], "CANCELLED")
                self.assertEqual(job["Restarts"], "0")
                self.assertGreaterEqual(run.saved_steps()[0], SOON)

    def test_a_program_that_fails_for_good_ends_the_job(self):
        """Rank 4 is a worker. The others would wait for it without end."""
        self.fail_for_good("fails")

    def test_a_task_that_is_launched_after_a_failure_ends_too(self):
        """Rank 3 never hears the signal: nothing was there to be signalled."""
        late = self.cluster.folder / "late.sh"
        late.write_text(LATE)
        self.fail_for_good("late", f"--export=ALL,BASH_ENV={late}")

    def fail_for_good(self, name: str, *flags: str):
        """A job whose rank 4 ends with 7 ends with that, and soon."""
        script = weir(
            *["render", "slurm", "--ps=2", "--workers=2", f"--name={name}"],
            *[
                "--",
                "sh",
                "-c",
                '[ "$SLURM_PROCID" != 4 ] || exit 7; sleep 600',
            ],
        )
        folder = self.cluster.folder / name
        folder.mkdir()
        number = self.cluster.submit(script, folder, "--nodes=4", *flags)
        try:
            job = self.cluster.wait_for_end(number)
        except AssertionError:
            print(f"--- job {number}: {self.cluster.job(number)}")
            print((folder / "slurm.out").read_text())
            raise
        self.assertEqual(job["JobState"], "FAILED")
        self.assertEqual(job["ExitCode"], "7:0")


if __name__ == "__main__":
    if not WHY_NOT:
        slurm.enter_host_of_its_own()
    unittest.main(verbosity=2)
