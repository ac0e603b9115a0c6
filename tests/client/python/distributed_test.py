"""weir.torch with several workers, each a process of its own."""

import os
import subprocess
import sys
import tempfile
import time
import unittest

import torch
from torch import nn

from servers import Servers, binary, run_scripts, wait_for

# What a worker and the reference share.
COMMON = """
import os, signal, sys, time
import torch
from torch import nn

torch.set_num_threads(1)
STEPS, ROWS = 50, 16

def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 30), nn.Tanh(), nn.Linear(30, 3))

def batch(rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(ROWS, 12, generator=generator)
    return x, x[:, :3].argmax(1)

def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x), y)

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(
        p, lr=0.2, momentum=0.9, weight_decay=1e-3),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, weight_decay=1e-3),
    "rmsprop": lambda p: torch.optim.RMSprop(
        p, lr=0.005, momentum=0.5, weight_decay=1e-3),
    "adadelta": lambda p: torch.optim.Adadelta(p, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=1e-2),
}
CLIP = 0.5

def schedule(optimizer):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
"""

WORKER = (
    COMMON
    + """
import weir.torch as weir

mode, name, out = sys.argv[1:4]
kill_at = int(sys.argv[4]) if len(sys.argv) > 4 else -1
weir.init()
model = net()
optimizer = weir.DistributedOptimizer(
    OPTIMIZERS[name](model.parameters()), model=model, mode=mode)
scheduler = schedule(optimizer)
first = optimizer.pushes
for _ in range(first):
    scheduler.step()  # as far as this rank is
for step in range(first, STEPS):
    optimizer.zero_grad()
    loss_of(model, *batch(weir.rank(), step)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    if step == kill_at and first == 0 and weir.rank() == 1:
        # In mid-step: a part of the gradient is on its way.
        optimizer._begin()
        optimizer._send([optimizer._trained[-1]])
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
    scheduler.step()
optimizer.finish()
if weir.rank() == 0:
    torch.save(model.state_dict(), out)
"""
)


def reference(name, workers):
    """One process; its gradient is the mean of every worker's, clipped as
    each clips its own."""
    scope = {}
    exec(COMMON, scope)  # pylint: disable=exec-used
    model, start = scope["net"](), scope["net"]()
    optimizer = scope["OPTIMIZERS"][name](model.parameters())
    scheduler = scope["schedule"](optimizer)
    for step in range(scope["STEPS"]):
        sums = [torch.zeros_like(p) for p in model.parameters()]
        for rank in range(workers):
            optimizer.zero_grad()
            scope["loss_of"](model, *scope["batch"](rank, step)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), scope["CLIP"])
            for total, p in zip(sums, model.parameters()):
                total += p.grad / workers
        for total, p in zip(sums, model.parameters()):
            p.grad = total
        optimizer.step()
        scheduler.step()
    return start.state_dict(), model.state_dict()


class DistributedTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "model.pt")

    def assert_close(self, name, workers):
        start, expected = reference(name, workers)
        found = torch.load(self.out)
        for key, value in expected.items():
            moved = (value - start[key]).norm()
            error = (found[key] - value).norm()
            self.assertLessEqual(error, 1e-4 * moved, f"{name}: {key}")

    def test_sync_equals_one_process_with_the_combined_batch(self):
        scope = {}
        exec(COMMON, scope)  # pylint: disable=exec-used
        for name in scope["OPTIMIZERS"]:
            with self.subTest(name), Servers(2) as servers:
                run_scripts(servers, WORKER, 2, ["sync", name, self.out])
                self.assert_close(name, 2)

    def run_with_kill(self, mode):
        """`weir run` starts worker 1 again, which dies in mid-step."""
        done = subprocess.run(
            [binary("deploy/cli/weir_cli"), "run", "--ps", "2"]
            + ["--workers", "2", "--", sys.executable, "-c", WORKER]
            + [mode, "adam", self.out, "20"],
            env=dict(
                os.environ,
                PYTHONPATH=os.pathsep.join(sys.path),
                WEIR_BIN_DIR=binary("."),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("worker/1 failed with code 137", done.stdout)
        self.assertIn("it is started again (1 of 3)", done.stdout)
        return torch.load(self.out)

    def test_sync_has_the_same_bits_after_a_kill(self):
        killed = self.run_with_kill("sync")
        with Servers(2) as servers:
            run_scripts(servers, WORKER, 2, ["sync", "adam", self.out])
        for key, value in torch.load(self.out).items():
            self.assertTrue(torch.equal(value, killed[key]), key)

    def test_async_goes_on_after_a_kill(self):
        killed = self.run_with_kill("async")
        scope = {}
        exec(COMMON, scope)  # pylint: disable=exec-used
        model = scope["net"]()
        before = scope["loss_of"](model, *scope["batch"](5, 5))
        model.load_state_dict(killed)
        after = scope["loss_of"](model, *scope["batch"](5, 5))
        self.assertLess(after, 0.5 * before)

    def test_ranks_but_the_first_take_its_buffers(self):
        script = """
import torch, weir.torch as weir
from torch import nn
weir.init()
torch.manual_seed(7 + weir.rank())  # rank 0's values count
model = nn.BatchNorm1d(4)
optimizer = weir.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), model=model, mode="sync")
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4) + weir.rank()).square().mean().backward()
    optimizer.step()
optimizer.pull()
print(int(model.num_batches_tracked), model.running_mean.tolist())
"""
        with Servers(1) as servers:
            first, second = run_scripts(servers, script, 2)
        self.assertEqual(first, second)
        self.assertTrue(first.startswith("3 "))

    def test_a_loader_that_forks_is_no_trouble_until_it_calls(self):
        script = """
import torch, weir, weir.torch
weir.torch.init()
model = torch.nn.Linear(2, 1)
optimizer = weir.torch.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), model=model)

class Data(torch.utils.data.Dataset):
    bad = False
    def __len__(self):
        return 8
    def __getitem__(self, i):
        if self.bad:
            optimizer.pull()
        return torch.ones(2) * i

for _ in range(2):
    for x in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=2):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
print(optimizer.pushes)
Data.bad = True
try:
    list(torch.utils.data.DataLoader(Data(), num_workers=1))
except Exception as error:
    print("Forked" in str(error), "spawn" in str(error))
"""
        with Servers(1) as servers:
            (output,) = run_scripts(servers, script, 1)
        self.assertEqual(output.split(), ["8", "True", "True"])

    def test_a_worker_that_fails_does_not_count_as_finished(self):
        # Its peer goes on waiting for its successor, until it comes.
        script = """
import os, sys, torch, weir.torch as weir
weir.init()
model = torch.nn.Linear(2, 1)
optimizer = weir.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), model=model, mode="sync")
while optimizer.pushes < 4:
    if weir.rank() == 1 and optimizer.pushes == 2:
        if "raise" in sys.argv:
            raise ValueError("no more")
        if "exit" in sys.argv:
            sys.exit(1)  # as hydra and click do after an exception
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""
        for how in ("raise", "exit"):
            with self.subTest(how), Servers(1) as servers:
                self.fail_and_start_again(servers, script, how)

    def fail_and_start_again(self, servers, script, how):
        def start(rank, *arguments):
            return subprocess.Popen(
                [sys.executable, "-c", script, *arguments],
                env=servers.environment(rank, 2),
                stderr=subprocess.DEVNULL,
            )

        first, second = start(0), start(1, how)
        try:
            self.assertEqual(second.wait(60), 1)
            time.sleep(0.5)
            self.assertIsNone(first.poll())
            second = start(1)
            wait_for(lambda: first.poll() is not None, 60)
            self.assertEqual((first.wait(), second.wait(60)), (0, 0))
        finally:
            for worker in (first, second):
                worker.kill()
                worker.wait()


if __name__ == "__main__":
    unittest.main()
