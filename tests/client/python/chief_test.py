"""Jobs of scripts with a chief: checkpoints, kills and resuming."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import torch

import weir
from free_ports import free_port
from safetensors_file import read_safetensors
from servers import Servers, binary, wait_for

COMMON = """
import os, signal, sys, time
import torch
from torch import nn
import weir.torch as weir

torch.set_num_threads(1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(12, 30), nn.BatchNorm1d(30), nn.Tanh(), nn.Linear(30, 3))
        self.head = self.layers[3]  # a second name of it
        self.scale = nn.Parameter(torch.ones(3).half())
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))

    def forward(self, x):
        return self.layers(x) * self.scale.float()

def net():
    torch.manual_seed(1 + weir.rank())  # rank 0's values count
    return Net()

def batch(rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(16, 12, generator=generator)
    return x, x[:, :3].argmax(1)
"""

WORKER = (
    COMMON
    + """
mode, steps, out, pause = sys.argv[1:5]
weir.init()
model = net()
print("joining", flush=True)
optimizer = weir.DistributedOptimizer(
    torch.optim.Adam(model.parameters(), lr=0.01), model=model, mode=mode)
first = optimizer.pushes
print("from", first, flush=True)
for step in range(first, int(steps)):
    optimizer.zero_grad()
    x, y = batch(weir.rank(), step)
    nn.functional.cross_entropy(model(x), y).backward()
    if sys.argv[5:] == ["die"] and weir.rank() == 1 and step == 20 != first:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
    time.sleep(float(pause))
if weir.rank() == 0:
    optimizer.pull()
    torch.save(model.state_dict(), out)
"""
)

REPORTER = (
    COMMON
    + """
weir.init()
model = net()
optimizer = weir.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01), model=model, mode=sys.argv[1])
total = 0.0
for step in range(optimizer.pushes, int(sys.argv[2])):
    optimizer.zero_grad()
    x, y = batch(weir.rank(), step)
    x, y = x[:4 + step % 3], y[:4 + step % 3]
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.report(loss, examples=len(x), **{"val/rank": weir.rank()})
    total += float(loss.detach()) * len(x)
    time.sleep(0.03)
print("total", total, flush=True)
"""
)


class Job:
    """ps, a chief and scripts; a context manager."""

    def __init__(self, folder, *, ps=2, workers=2):
        self.folder, self.workers = folder, workers
        self.servers = Servers(ps, os.path.join(folder, "run/checkpoints"))
        self.address = f"127.0.0.1:{free_port()}"
        # __exit__ closes it.
        log = os.path.join(folder, "chief.log")
        self.log = open(log, "ab")  # noqa: SIM115
        self.running = []

    def start_chief(self, *arguments):
        hosts = ",".join(f"127.0.0.1:{9 + w}" for w in range(self.workers))
        cluster = (
            f"ps={','.join(self.servers.addresses)};worker={hosts};"
            f"chief={self.address}"
        )
        chief = subprocess.Popen(
            [
                binary("server/chief/weir_chief"),
                "--cluster",
                cluster,
                "--workdir",
                os.path.join(self.folder, "run"),
                *arguments,
            ],
            stdout=self.log,
            stderr=self.log,
        )
        self.running.append(chief)
        return chief

    def start_worker(self, rank, *arguments, script=WORKER):
        worker = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            env=dict(
                self.servers.environment(rank, self.workers),
                WEIR_CHIEF=self.address,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.running.append(worker)
        return worker

    def checkpoints(self):
        return [c.step for c in weir.checkpoints(self.folder + "/run")]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.running:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self.servers.__exit__()
        self.log.close()


class ChiefTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = os.path.join(self.folder, "model.pt")

    def end(self, process, code=0):
        output, _ = process.communicate(timeout=90)
        self.assertEqual(process.returncode, code, output)
        return output

    def uninterrupted(self, steps):
        """What 2 sync workers end with when nothing happens to them."""
        with tempfile.TemporaryDirectory() as folder, Job(folder) as job:
            chief = job.start_chief("--checkpoint_every_steps", "10")
            workers = [
                job.start_worker(r, "sync", steps, self.out, 0) for r in (0, 1)
            ]
            for process in [*workers, chief]:
                self.end(process)
        return torch.load(self.out)

    def assert_same(self, expected):
        found = torch.load(self.out)
        self.assertEqual(list(found), list(expected))
        for key, value in expected.items():
            self.assertTrue(torch.equal(found[key], value), key)

    def test_a_killed_chief_and_a_killed_worker_change_no_bit(self):
        expected = self.uninterrupted(60)
        with Job(self.folder) as job:
            chief = job.start_chief("--checkpoint_every_steps", "10")
            first = job.start_worker(0, "sync", 60, self.out, 0.02)
            second = job.start_worker(1, "sync", 60, self.out, 0.02, "die")
            self.end(second, -signal.SIGKILL)
            chief.kill()
            chief.wait()
            second = job.start_worker(1, "sync", 60, self.out, 0.02, "die")
            time.sleep(0.5)
            chief = job.start_chief("--checkpoint_every_steps", "10")
            self.end(first)
            self.assertIn("from 20", self.end(second))
            self.end(chief)
            self.assertIn(60, job.checkpoints())
        self.assert_same(expected)

    def test_a_lost_job_resumes_with_the_same_bits_on_other_ps(self):
        expected = self.uninterrupted(80)
        with Job(self.folder) as job:
            job.start_chief("--checkpoint_every_steps", "10")
            for rank in (0, 1):
                job.start_worker(rank, "sync", 80, self.out, 0.05)
            wait_for(lambda: len(job.checkpoints()) >= 2, 60)
        # Everything is gone but the run's directory.
        with Job(self.folder, ps=3) as job:
            kept = job.checkpoints()[-1]
            self.assertLess(kept, 80)
            chief = job.start_chief("--resume")
            workers = [
                job.start_worker(r, "sync", 80, self.out, 0) for r in (0, 1)
            ]
            for worker in workers:
                self.assertIn(f"from {kept}", self.end(worker))
            self.end(chief)
        self.assert_same(expected)

    def test_async_pushes_of_each_worker_go_on(self):
        with Job(self.folder) as job:
            job.start_chief("--checkpoint_every_seconds", "0.2")
            job.start_worker(0, "async", 1000, self.out, 0.01)
            job.start_worker(1, "async", 1000, self.out, 0.03)
            wait_for(lambda: len(job.checkpoints()) >= 3, 60)
        with Job(self.folder) as job:
            kept = job.checkpoints()[-1]
            chief = job.start_chief("--resume")
            workers = [
                job.start_worker(r, "async", 0, self.out, 0) for r in (0, 1)
            ]
            begun = [
                int(re.search(r"from (\d+)", self.end(worker))[1])
                for worker in workers
            ]
            self.end(chief)
        self.assertEqual(sum(begun), kept)
        self.assertGreater(begun[0], begun[1])

    def reported(self, job, *arguments):
        """What the scripts of REPORTER reported: losses times examples."""
        workers = [
            job.start_worker(r, *arguments, script=REPORTER) for r in (0, 1)
        ]
        outputs = [self.end(worker) for worker in workers]
        return sum(float(re.search(r"total (.*)", o)[1]) for o in outputs)

    def test_what_scripts_report_is_the_curve_through_a_resume(self):
        path = os.path.join(self.folder, "run", "train.jsonl")
        total = 0.0
        for mode, steps in ("sync", 60), ("sync", 90):
            with Job(self.folder) as job:
                chief = job.start_chief("--resume")
                total += self.reported(job, mode, steps)
                self.end(chief)
            with open(path, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            self.assertEqual(lines[-1]["step"], steps)
        self.assertGreaterEqual(len(lines), 3)  # about one a second
        examples = [0, *(line["examples"] for line in lines)]
        # Each line is the mean over the examples that came with it.
        found = sum(
            line["loss"] * (now - before)
            for line, before, now in zip(lines, examples, examples[1:])
        )
        self.assertAlmostEqual(found, total, places=3)
        self.assertEqual(examples[-1], 2 * sum(4 + s % 3 for s in range(90)))
        for key in "step", "seconds":
            values = [line[key] for line in lines]
            self.assertEqual(values, sorted(values), key)
        for line in lines:
            self.assertGreater(line["examples_per_second"], 0)
            self.assertTrue(0 <= line["val/rank"] <= 1, line)
        curves = os.listdir(os.path.join(self.folder, "run/tensorboard/train"))
        self.assertEqual(len(curves), 2)  # one of each chief

    def test_the_export_is_the_state_dict(self):
        with Job(self.folder, workers=1) as job:
            chief = job.start_chief()
            self.end(job.start_worker(0, "async", 30, self.out, 0))
            self.end(chief)
        path = self.folder + "/run/checkpoints/ckpt-30"
        exported = self.folder + "/model.safetensors"
        said = ""
        for command in (
            ["verify", path],
            ["inspect", path],
            ["export", path, "--out", exported],
        ):
            said += subprocess.run(
                [binary("deploy/cli/weir_cli"), "checkpoint", *command],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        self.assertIn("pushes by worker: 30", said)
        expected = torch.load(self.out)
        found = {
            key: torch.from_numpy(value.copy())
            for key, value in read_safetensors(exported).items()
        }
        self.assertEqual(set(found), set(expected))
        for key, value in expected.items():
            self.assertEqual(found[key].dtype, value.dtype, key)
            self.assertTrue(torch.equal(found[key], value), key)
        self.assertEqual(found["layers.1.num_batches_tracked"].item(), 30)
        self.assertEqual(found["scale"].dtype, torch.float16)
        self.assertFalse(torch.equal(found["scale"], torch.ones(3).half()))

    def test_sigterm_to_the_chief_ends_the_scripts_after_a_checkpoint(self):
        with Job(self.folder) as job:
            chief = job.start_chief()
            workers = [
                job.start_worker(r, "async", 100000, self.out, 0.01)
                for r in (0, 1)
            ]
            for worker in workers:
                while "from 0" not in worker.stdout.readline():
                    self.assertIsNone(worker.poll())
            time.sleep(0.5)
            chief.send_signal(signal.SIGTERM)
            for worker in workers:
                output = self.end(worker, 1)
                self.assertIn("weir.errors.JobEnded", output)
                self.assertIn("SIGTERM: stopped after ckpt-", output)
            self.end(chief, 143)
            self.assertEqual(len(job.checkpoints()), 1)

    def test_ctrl_c_ends_a_script_that_waits_for_its_chief(self):
        with Job(self.folder, workers=1) as job:
            worker = job.start_worker(0, "async", 1, self.out, 0)
            while "joining" not in worker.stdout.readline():
                self.assertIsNone(worker.poll())
            time.sleep(0.5)
            begin = time.monotonic()
            worker.send_signal(signal.SIGINT)
            output = worker.communicate(timeout=30)[0]
            self.assertLess(time.monotonic() - begin, 3)
            self.assertIn("KeyboardInterrupt", output)

    def weir_run(self, *arguments):
        """Runs a job of two servers, two workers and a chief to its end."""
        done = subprocess.run(
            [
                binary("deploy/cli/weir_cli"),
                "run",
                "--ps",
                "2",
                "--workers",
                "2",
                "--chief",
                "--workdir",
                self.folder + "/run",
                "--checkpoint_every_steps",
                "20",
                *arguments,
            ],
            env=dict(
                os.environ,
                PYTHONPATH=os.pathsep.join(sys.path),
                WEIR_BIN_DIR=binary("."),
            ),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_weir_run_with_a_chief_and_an_evaluator(self):
        evaluator = os.path.join(self.folder, "evaluate.py")
        with open(evaluator, "w", encoding="utf-8") as file:
            file.write("""
import os, weir
for checkpoint in weir.checkpoints(os.environ["WEIR_WORKDIR"], follow=True):
    tensors = checkpoint.tensors()
    shape = tensors["layers.0.weight"].shape
    print("evaluated", checkpoint.step, shape, flush=True)
""")
        script = os.path.join(self.folder, "train.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(WORKER)
        worker = ["--", sys.executable, script, "sync"]
        said = self.weir_run(
            "--evaluator",
            f"{sys.executable} {evaluator}",
            *worker,
            "50",
            self.out,
            "0.01",
            "die",
        )
        self.assertIn("[worker/1] from 20", said)
        self.assertIn("[evaluator/0] evaluated 50 (30, 12)", said)
        # The job is done; --resume lets it train on.
        said = self.weir_run("--resume", *worker, "60", self.out, "0")
        self.assertIn("[worker/0] from 50", said)

    def test_ctrl_c_of_weir_run_leaves_a_checkpoint(self):
        script = os.path.join(self.folder, "train.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(WORKER)
        run = subprocess.Popen(
            [
                binary("deploy/cli/weir_cli"),
                "run",
                "--chief",
                "--workdir",
                self.folder + "/run",
                "--",
                sys.executable,
                script,
                "async",
                "100000",
                self.out,
                "0.01",
            ],
            env=dict(
                os.environ,
                PYTHONPATH=os.pathsep.join(sys.path),
                WEIR_BIN_DIR=binary("."),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            while "from 0" not in run.stdout.readline():
                pass
            time.sleep(0.5)
            begin = time.monotonic()
            run.send_signal(signal.SIGINT)
            output = run.communicate(timeout=60)[0]
        finally:
            run.kill()
        self.assertEqual(run.returncode, 130, output)
        self.assertLess(time.monotonic() - begin, 30)
        steps = [c.step for c in weir.checkpoints(self.folder + "/run")]
        self.assertEqual(len(steps), 1, output)
        self.assertGreater(steps[0], 0)


if __name__ == "__main__":
    unittest.main()
