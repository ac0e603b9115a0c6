"""Embedding tables with several workers, each a process of its own."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import torch
from torch import nn

from servers import Servers, binary, run_scripts

# What a worker and the reference share.
COMMON = """
import os, signal, sys
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
STEPS, ROWS, IDS, DIM = 30, 16, 200, 4

def top():
    torch.manual_seed(1)
    return nn.Linear(DIM, 1)

def batch(rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    ids = (torch.rand(ROWS, 3, generator=generator) ** 3 * IDS).long()
    return ids, (torch.sin(ids * 7.0).sum(1) > 0).float()

def loss_of(model, rank, step):
    ids, clicks = batch(rank, step)
    return nn.functional.binary_cross_entropy_with_logits(
        model(ids)[:, 0], clicks)
"""

WORKER = (
    COMMON
    + """
import weir.torch as weir

mode, name, out = sys.argv[1:4]
kill_at = int(sys.argv[4]) if len(sys.argv) > 4 else -1
weir.init()
rule = {"sgd": weir.SGD(lr=0.5),
        "adagrad": weir.Adagrad(lr=0.1, initial_accumulator=0.1),
        "adam": weir.SparseAdam(lr=0.01)}[name]
bag = weir.EmbeddingBag(IDS, DIM, name="t", mode="mean", optimizer=rule,
                        init="normal", init_scale=0.3)
model = nn.Sequential(bag, top())
optimizer = weir.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), model=model, mode=mode,
    staleness=2 if mode == "ssp" else 0)
first = optimizer.pushes
start = optimizer._client.lookup("t", np.arange(IDS), train=False)
losses = []
for step in range(first, STEPS):
    optimizer.zero_grad()
    loss = loss_of(model, weir.rank(), step)
    loss.backward()
    losses.append(loss.item())
    if step == kill_at and first == 0 and weir.rank() == 1:
        # In mid-step: rows are on their way, and a part of the rest.
        core = optimizer._client._declared()
        optimizer._begin()
        core.push_rows(optimizer._rows.lists(1.0))
        optimizer._send([optimizer._trained[-1]])
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
after = optimizer._client.lookup("t", np.arange(IDS), train=False)
torch.save({"start": start, "after": after, "losses": losses,
            "top": [p.detach().clone() for p in model.parameters()]},
           f"{out}.{weir.rank()}")
optimizer.finish()
"""
)

# Of the job so far, and of the job at its end: the sum of all rows.
RESUMED = """
import sys
import numpy as np
import weir

table = weir.Table("user", 3, weir.Adagrad(lr=0.1, initial_accumulator=0.1))
ids = np.arange(40)
with weir.connect(seed=5) as client:
    client.declare({"w": np.zeros(3)}, [table], optimizer=weir.SGD(lr=0.1),
                   mode="sync")
    total = lambda: float(client.lookup("user", ids, train=False).sum())
    print("begin", client.pushes, total())
    for step in range(client.pushes, int(sys.argv[1])):
        gradient = 0.5 * client.lookup("user", ids) + client.rank + step
        client.push_pull({"w": np.ones(3)}, rows={"user": (ids, gradient)})
    print("end", client.pushes, total())
"""

RULES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(
        p, lr=0.1, initial_accumulator_value=0.1
    ),
    "adam": lambda p: torch.optim.SparseAdam(p, lr=0.01),
}


def reference(name, workers, start):
    """One process with the batches of all workers as one."""
    scope = {}
    exec(COMMON, scope)  # pylint: disable=exec-used
    bag = nn.EmbeddingBag.from_pretrained(
        torch.from_numpy(start.copy()), freeze=False, mode="mean", sparse=True
    )
    model = nn.Sequential(bag, scope["top"]())
    steps = [
        torch.optim.SGD(model[1].parameters(), lr=0.1),
        RULES[name](list(bag.parameters())),
    ]
    for step in range(scope["STEPS"]):
        batches = [scope["batch"](rank, step) for rank in range(workers)]
        ids, clicks = (torch.cat(part) for part in zip(*batches))
        model.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(
            model(ids)[:, 0], clicks
        ).backward()
        for each in steps:
            each.step()
    return bag.weight.detach(), [p.detach() for p in model[1].parameters()]


class DistributedTablesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "rank")

    def assert_is_reference(self, name, workers):
        found = torch.load(f"{self.out}.0")
        rows, top = reference(name, workers, found["start"])
        start = torch.from_numpy(found["start"])
        error = (torch.from_numpy(found["after"]) - rows).norm()
        self.assertLessEqual(error, 1e-4 * (rows - start).norm(), name)
        for ours, theirs in zip(found["top"], top):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)

    def test_sync_is_one_process_with_the_combined_batch(self):
        for name in RULES:
            with self.subTest(name), Servers(2) as servers:
                run_scripts(servers, WORKER, 2, ["sync", name, self.out])
                self.assert_is_reference(name, 2)

    def test_the_other_modes_learn(self):
        for mode in ("async", "ssp"):
            with self.subTest(mode), Servers(2) as servers:
                run_scripts(servers, WORKER, 3, [mode, "adagrad", self.out])
                losses = torch.load(f"{self.out}.0")["losses"]
                self.assertLess(sum(losses[-5:]), 0.95 * sum(losses[:5]))

    def test_a_killed_worker_goes_on_and_pushes_nothing_twice(self):
        with Servers(2) as servers:
            arguments = ["sync", "adagrad", self.out, "10"]

            def start(rank):
                return subprocess.Popen(
                    [sys.executable, "-c", WORKER, *arguments],
                    env=servers.environment(rank, 2),
                )

            workers = [start(0), start(1)]
            try:
                self.assertEqual(workers[1].wait(60), -signal.SIGKILL)
                workers[1] = start(1)
                for worker in workers:
                    self.assertEqual(worker.wait(60), 0)
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait()
        self.assert_is_reference("adagrad", 2)

    def run_job(self, ps, steps, *more):
        """What worker 0 printed of the beginning and the end."""
        done = subprocess.run(
            [binary("deploy/cli/weir_cli"), "run", "--ps", str(ps)]
            + ["--workers", "2", "--chief", "--workdir", self.out, *more]
            + ["--", sys.executable, "-c", RESUMED, str(steps)],
            env=dict(
                os.environ,
                PYTHONPATH=os.pathsep.join(sys.path),
                WEIR_BIN_DIR=os.environ.get("WEIR_BIN_DIR") or os.getcwd(),
            ),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [
            line.split("] ", 1)[1].split()[1:]
            for line in done.stdout.splitlines()
            if line.startswith(("[worker/0] begin", "[worker/0] end"))
        ]

    def test_a_job_goes_on_from_its_checkpoint_with_the_same_bits(self):
        first = self.run_job(2, 6)
        rest = self.run_job(3, 10, "--resume")
        self.assertEqual(rest[0], first[1])
        shutil.rmtree(self.out)
        self.assertEqual(rest[1], self.run_job(2, 10)[1])


if __name__ == "__main__":
    unittest.main()
