"""weir.torch with one worker against the same PyTorch code without Weir."""

import copy
import inspect
import os
import tempfile
import threading
import unittest
from itertools import chain

import torch
from torch import nn

import weir
import weir.torch
from servers import TorchTestCase


def net():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(12, 30),
        nn.Tanh(),
        nn.Linear(30, 8),
        nn.Tanh(),
        nn.Linear(8, 3),
    )


def batch(step, rows=16):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(rows, 12, generator=generator)
    return x, (x[:, :3].argmax(1))


def loss_of(model, step):
    x, y = batch(step)
    return nn.functional.cross_entropy(model(x), y)


class TorchTest(TorchTestCase):
    def again(self):
        """A new process of this worker, as far as the servers can tell."""
        self.close()
        weir.torch.init(ps=self.servers.addresses)

    def distributed(self, optimizer, model, **options):
        return weir.torch.DistributedOptimizer(
            optimizer, model=model, **options
        )

    def assert_close(self, model, reference, start, tolerance=1e-5):
        """Within `tolerance` of the way that the reference has gone."""
        for (name, ours), theirs, begin in zip(
            model.named_parameters(),
            reference.parameters(),
            start.parameters(),
        ):
            moved = (theirs - begin).float().norm()
            error = (ours - theirs).float().norm()
            self.assertLessEqual(error, tolerance * moved, name)

    def compare(self, make_optimizer, train, make_model=net, **options):
        """Runs `train(model, optimizer)` with and without servers."""
        model, reference = make_model(), make_model()
        start = copy.deepcopy(model)
        train(reference, make_optimizer(reference))
        optimizer = self.distributed(make_optimizer(model), model, **options)
        train(model, optimizer)
        self.assert_close(model, reference, start)
        return model, reference, optimizer

    # ------------------------------------------------------------- optimizers

    def test_every_optimizer(self):
        kinds = {
            "sgd": lambda p: torch.optim.SGD(
                p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3
            ),
            "adagrad": lambda p: torch.optim.Adagrad(
                p, lr=0.05, lr_decay=0.01, initial_accumulator_value=0.1
            ),
            "rmsprop": lambda p: torch.optim.RMSprop(
                p, lr=0.01, momentum=0.5, centered=True
            ),
            "adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
            "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
            "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
        }

        def train(model, optimizer):
            for step in range(20):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()

        for name, make in kinds.items():
            with self.subTest(name):
                self.setUp()
                self.compare(lambda m, make=make: make(m.parameters()), train)
                self.doCleanups()

    def test_groups_keep_their_hyper_parameters(self):
        def make(model):
            return torch.optim.SGD(
                [
                    {"params": model[0].parameters(), "lr": 0.5},
                    {"params": model[2].parameters(), "weight_decay": 0.1},
                    {"params": model[4].parameters()},
                ],
                lr=0.1,
            )

        def train(model, optimizer):
            for step in range(10):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()

        self.compare(make, train)

    def test_maximize(self):
        def train(model, optimizer):
            for step in range(5):
                optimizer.zero_grad()
                (-loss_of(model, step)).backward()
                optimizer.step()

        self.compare(
            lambda m: torch.optim.SGD(m.parameters(), lr=0.1, maximize=True),
            train,
        )

    def test_an_optimizer_that_servers_have_not(self):
        def make(model):
            return torch.optim.NAdam(model.parameters(), lr=0.01)

        model = net()
        with self.assertRaisesRegex(weir.InvalidArgument, "NAdam.*local=True"):
            self.distributed(make(model), model)

        def train(model, optimizer):
            for step in range(20):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()

        self.compare(make, train, local=True)

    def test_an_optimizer_that_calls_its_closure_often(self):
        calls = []

        def train(model, optimizer):
            def closure():
                optimizer.zero_grad()
                loss = loss_of(model, 0)
                loss.backward()
                calls.append(optimizer)
                return loss

            # One step: later ones divide by differences of what was rounded.
            self.assertGreater(optimizer.step(closure), 0.0)

        *_, optimizer = self.compare(
            lambda m: torch.optim.LBFGS(m.parameters(), lr=0.1, max_iter=4),
            train,
            local=True,
        )
        self.assertEqual(calls.count(optimizer), 4)

    # ------------------------------------------------- what scripts do beside

    def test_schedulers(self):
        schedulers = {
            "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.5),
            "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(
                o, 10
            ),
            # These change the momentum, too.
            "cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(
                o, 0.1, total_steps=20
            ),
        }
        for name, make in schedulers.items():
            with self.subTest(name):
                self.setUp()

                def train(model, optimizer, make=make):
                    scheduler = make(optimizer)
                    for step in range(15):
                        optimizer.zero_grad()
                        loss_of(model, step).backward()
                        optimizer.step()
                        scheduler.step()

                self.compare(
                    lambda m: torch.optim.AdamW(m.parameters(), lr=0.01), train
                )
                self.doCleanups()

    def test_clipping_and_accumulation(self):
        def train(model, optimizer):
            for step in range(10):
                optimizer.zero_grad()
                for part in range(3):
                    (loss_of(model, 3 * step + part) / 3).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                optimizer.step()

        self.compare(
            lambda m: torch.optim.SGD(m.parameters(), lr=0.5, momentum=0.9),
            train,
        )

    def test_a_closure(self):
        def train(model, optimizer):
            for step in range(5):

                def closure(step=step):
                    optimizer.zero_grad()
                    loss = loss_of(model, step)
                    loss.backward()
                    return loss

                self.assertGreater(optimizer.step(closure), 0.0)

        self.compare(lambda m: torch.optim.SGD(m.parameters(), lr=0.1), train)

    def test_overlap(self):
        def train(model, optimizer):
            for step in range(10):
                optimizer.zero_grad()
                for part in range(2):
                    (loss_of(model, 2 * step + part) / 2).backward()
                optimizer.step()

        self.compare(
            lambda m: torch.optim.Adam(m.parameters(), lr=0.01),
            train,
            overlap=True,
            backward_passes=2,
        )

    def test_overlap_leaves_no_batch_out_in_silence(self):
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        optimizer = self.distributed(
            torch.optim.SGD(model.parameters(), lr=1.0), model, overlap=True
        )

        def backward(gradient):
            (gradient * model(torch.ones(1, 1)).sum()).backward()

        backward(100.0)
        with self.assertRaisesRegex(weir.InvalidArgument, "call step"):
            optimizer.zero_grad()
        model.zero_grad()  # it does not know of the push
        with self.assertRaisesRegex(weir.InvalidArgument, "backward_passes"):
            backward(1.0)
        optimizer.step()
        self.assertEqual(model.weight.item(), -100.0)
        optimizer.zero_grad()
        backward(1.0)
        optimizer.step()
        self.assertEqual(model.weight.item(), -101.0)

    def test_overlap_forgets_what_was_accumulated(self):
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        optimizer = self.distributed(
            torch.optim.SGD(model.parameters(), lr=1.0),
            model,
            overlap=True,
            backward_passes=2,
        )

        def backward(gradient):
            (gradient * model(torch.ones(1, 1)).sum()).backward()

        backward(100.0)
        optimizer.zero_grad()  # nothing has left
        for _ in range(2):
            backward(1.0)
        self.assertTrue(optimizer._pushing)
        optimizer.step()
        self.assertEqual(model.weight.item(), -2.0)

    def test_hooks_of_two_threads_begin_one_push(self):
        model = net()
        optimizer = self.distributed(
            torch.optim.SGD(model.parameters(), lr=0.1), model, overlap=True
        )
        for entry in optimizer._trained:
            entry.tensor.grad = torch.ones_like(entry.tensor)
        first, second = optimizer._trained[:2]
        other = threading.Thread(target=optimizer._on_gradient, args=[second])
        begin, begun = optimizer._begin, []

        def slow_begin():
            begun.append(threading.current_thread())
            if not other.is_alive() and other is not begun[-1]:
                other.start()
                other.join(0.2)  # it waits for this one
            begin()

        optimizer._begin = slow_begin
        optimizer._on_gradient(first)
        other.join()
        self.assertEqual(begun, [threading.current_thread()])
        self.assertEqual(optimizer._ready, {first.name, second.name})
        optimizer.step()

    def test_set_to_none_or_not(self):
        for set_to_none in (True, False):
            with self.subTest(set_to_none=set_to_none):
                self.setUp()

                def train(model, optimizer, none=set_to_none):
                    for step in range(5):
                        optimizer.zero_grad(set_to_none=none)
                        loss_of(model, step).backward()
                        optimizer.step()

                self.compare(lambda m: torch.optim.Adam(m.parameters()), train)
                self.doCleanups()

    def test_a_scaler_that_skips_a_step(self):
        model = net()
        optimizer = self.distributed(
            torch.optim.SGD(model.parameters(), lr=0.1), model
        )
        reference = net()
        plain = torch.optim.SGD(reference.parameters(), lr=0.1)
        self.assertTrue(optimizer._step_supports_amp_scaling)
        before = copy.deepcopy(model.state_dict())
        # What torch.cuda.amp.GradScaler.step sets around the call.
        (loss_of(model, 0) * float("inf")).backward()
        optimizer.grad_scale = torch.tensor(4.0)
        optimizer.found_inf = torch.tensor(1.0)
        optimizer.step()
        self.assertEqual(optimizer.pushes, 1)  # others would wait for it
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]))
        optimizer.zero_grad()
        (loss_of(model, 1) * 4.0).backward()
        optimizer.found_inf = torch.tensor(0.0)
        optimizer.step()
        loss_of(reference, 1).backward()
        plain.step()
        for ours, theirs in zip(model.parameters(), reference.parameters()):
            torch.testing.assert_close(ours, theirs)

    def test_a_scaler_beside_an_optimizer_in_the_worker(self):
        def train(model, optimizer):
            for step in range(6):
                optimizer.zero_grad()
                loss = loss_of(model, step)
                if hasattr(optimizer, "_local"):
                    # What torch.cuda.amp.GradScaler sets.
                    optimizer.grad_scale = torch.tensor(65536.0)
                    optimizer.found_inf = torch.tensor(0.0)
                    loss = loss * 65536.0
                loss.backward()
                optimizer.step()

        self.compare(
            lambda m: torch.optim.ASGD(m.parameters(), lr=0.1),
            train,
            local=True,
        )

    @unittest.skipUnless(
        hasattr(torch.amp, "GradScaler"), "a scaler for the CPU is newer"
    )
    def test_torchs_own_scaler(self):
        def train(model, optimizer):
            scaler = torch.amp.GradScaler(
                "cpu", init_scale=1024.0, growth_interval=3
            )
            scales = []
            for step in range(12):
                optimizer.zero_grad()
                loss = loss_of(model, step)
                if step == 5:
                    loss = loss * float("inf")
                scaler.scale(loss).backward()
                if step % 2 == 1:
                    scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                scaler.step(optimizer)
                scaler.update()
                scales.append(scaler.get_scale())
            self.assertEqual(scales[4:6], [2048.0, 1024.0])  # step 5 is skipped
            self.assertFalse(hasattr(optimizer, "found_inf"))

        *_, optimizer = self.compare(
            lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
            train,
        )
        self.assertEqual(optimizer.pushes, 12)

    @unittest.skipUnless(
        "decoupled_weight_decay"
        in inspect.signature(torch.optim.Adam).parameters,
        "an Adam that decays as AdamW is newer",
    )
    def test_adam_with_decoupled_decay_and_tensors(self):
        def train(model, optimizer):
            for step in range(10):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()

        self.compare(
            lambda m: torch.optim.Adam(
                m.parameters(),
                lr=torch.tensor(0.01),
                weight_decay=0.5,
                decoupled_weight_decay=True,
            ),
            train,
        )

    @unittest.skipUnless(hasattr(torch, "compile"), "torch.compile is newer")
    def test_a_compiled_model(self):
        def train(model, optimizer):
            for step in range(5):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()

        *_, optimizer = self.compare(
            lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
            train,
            lambda: torch.compile(net(), backend="eager"),
        )
        self.assertIn("0.weight", [e.name for e in optimizer._entries])

    # ---------------------------------------------------------------- tensors

    def test_tied_frozen_and_unused_parameters(self):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(2)
                self.first = nn.Linear(12, 12, bias=False)
                self.second = nn.Linear(12, 12, bias=False)
                self.second.weight = self.first.weight
                self.frozen = nn.Linear(12, 3)
                self.frozen.requires_grad_(False)
                self.unused = nn.Linear(5, 5)

            def forward(self, x):
                return self.frozen(torch.tanh(self.second(self.first(x))))

        def train(model, optimizer):
            for step in range(10):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()

        # Decay would move what is not left out.
        model, reference, optimizer = self.compare(
            lambda m: torch.optim.AdamW(
                m.parameters(), lr=0.01, weight_decay=0.5
            ),
            train,
            Tied,
        )
        for name in ("frozen", "unused"):
            for ours, theirs in zip(
                getattr(model, name).parameters(),
                getattr(reference, name).parameters(),
            ):
                self.assertTrue(torch.equal(ours, theirs))
        tied = next(e for e in optimizer._entries if e.name == "first.weight")
        self.assertEqual(tied.aliases, ["second.weight"])

    def test_a_parameter_that_is_thawed(self):
        def train(model, optimizer):
            model[0].requires_grad_(False)
            for step in range(10):
                if step == 5:
                    model[0].requires_grad_(True)
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()

        self.compare(lambda m: torch.optim.Adam(m.parameters()), train)

    def test_scalars_and_empty_tensors(self):
        class Odd(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(3)
                self.scale = nn.Parameter(torch.tensor(1.5))
                self.empty = nn.Parameter(torch.zeros(0, 4))
                self.kernel = nn.Parameter(torch.randn(1, 12, 1, 3))

            def forward(self, x):
                y = (
                    torch.einsum(
                        "bi,ocij->bj",
                        x,
                        self.kernel.transpose(0, 2).reshape(1, 1, 12, 3),
                    )
                    * self.scale
                )
                return y + self.empty.sum()

        def train(model, optimizer):
            for step in range(5):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()

        self.compare(
            lambda m: torch.optim.SGD(m.parameters(), lr=0.1), train, Odd
        )

    def test_half_precision_parameters_have_a_float_master(self):
        for dtype, name in ((torch.float16, "F16"), (torch.bfloat16, "BF16")):
            with self.subTest(name):
                self.setUp()
                model = nn.Linear(4, 1, bias=False).to(dtype)
                with torch.no_grad():
                    model.weight.fill_(1.0)
                optimizer = self.distributed(
                    torch.optim.SGD(model.parameters(), lr=1e-4), model
                )
                for _ in range(100):  # each is below half a unit of 1.0
                    model.weight.grad = torch.ones_like(model.weight)
                    optimizer.step()
                master = optimizer._client.values["weight"]
                self.assertAlmostEqual(float(master[0, 0]), 0.99, places=5)
                self.assertEqual(model.weight.dtype, dtype)
                self.assertLess(float(model.weight[0, 0]), 1.0)
                self.assertEqual(optimizer._entries[0].export_dtype, name)
                self.doCleanups()

    def test_buffers_are_kept(self):
        def make():
            torch.manual_seed(4)
            return nn.Sequential(
                nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)
            )

        def train(model, optimizer):
            for step in range(7):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()

        model, reference, optimizer = self.compare(
            lambda m: torch.optim.SGD(m.parameters(), lr=0.1), train, make
        )
        optimizer._client.pull()
        values = optimizer._client.values
        self.assertEqual(values["1.num_batches_tracked"], 7)
        torch.testing.assert_close(
            torch.from_numpy(values["1.running_mean"].copy()),
            model[1].running_mean,
            rtol=0,
            atol=0,
        )
        torch.testing.assert_close(
            model[1].running_var, reference[1].running_var
        )

    def test_sparse_gradients(self):
        def make():
            torch.manual_seed(5)
            return nn.EmbeddingBag(10, 3, mode="sum", sparse=True)

        def train(model, optimizer):
            for step in range(5):
                ids = torch.tensor([[1, 2, 2], [2, 7, step]])
                optimizer.zero_grad()
                model(ids).square().sum().backward()
                optimizer.step()

        self.compare(
            lambda m: torch.optim.SGD(m.parameters(), lr=0.1), train, make
        )

    # ------------------------------------------------------------------- life

    def test_a_new_process_goes_on_from_the_servers(self):
        model = net()
        optimizer = self.distributed(
            torch.optim.SGD(model.parameters(), lr=0.1), model
        )
        loss_of(model, 0).backward()
        optimizer.step()
        after = copy.deepcopy(model.state_dict())
        self.again()
        torch.manual_seed(99)
        fresh = nn.Sequential(
            nn.Linear(12, 30),
            nn.Tanh(),
            nn.Linear(30, 8),
            nn.Tanh(),
            nn.Linear(8, 3),
        )
        optimizer = self.distributed(
            torch.optim.SGD(fresh.parameters(), lr=0.1), fresh
        )
        self.assertEqual(optimizer.first_push, 1)
        for name, value in fresh.state_dict().items():
            self.assertTrue(torch.equal(value, after[name]), name)

    def test_a_schedule_goes_on_in_a_new_process(self):
        def by_lambda(optimizer, first):
            return torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda step: 0.9 ** (first + step)
            )

        def by_steps(optimizer, first):
            scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
                optimizer, 10
            )
            for _ in range(first):
                scheduler.step()
            return scheduler

        def train(optimizer, model, make, end):
            first = getattr(optimizer, "pushes", len(rates))
            scheduler = make(optimizer, first)
            for step in range(first, end):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                rates.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
                scheduler.step()

        for make in (by_lambda, by_steps):
            with self.subTest(make.__name__):
                self.setUp()
                reference, start = net(), net()
                rates = []
                plain = torch.optim.SGD(reference.parameters(), lr=0.1)
                train(plain, reference, make, 8)
                expected, rates = rates, []
                for end in (5, 8):  # started again after 5
                    model = net()
                    optimizer = self.distributed(
                        torch.optim.SGD(model.parameters(), lr=0.1), model
                    )
                    train(optimizer, model, make, end)
                    self.again()
                for ours, theirs in zip(rates, expected):
                    self.assertAlmostEqual(ours, theirs, places=12)
                self.assertEqual(len(rates), 8)
                self.assert_close(model, reference, start)
                self.doCleanups()

    def test_save_and_load(self):
        model = net()
        optimizer = self.distributed(
            torch.optim.Adam(model.parameters(), lr=0.1), model
        )
        loss_of(model, 0).backward()
        optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.pt")
            weir.torch.save(path, model, optimizer, epoch=3)
            self.assertEqual(os.listdir(folder), ["model.pt"])
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            with self.assertRaisesRegex(weir.InvalidArgument, "before"):
                weir.torch.load(path, model)
            self.again()
            fresh = net()
            content = weir.torch.load(path, fresh)
        self.assertEqual(content["epoch"], 3)
        self.assertEqual(content["optimizer"]["weir"], {"pushes": 1})
        for name, value in fresh.state_dict().items():
            self.assertTrue(torch.equal(value, model.state_dict()[name]))

    def test_load_takes_what_save_may_write(self):
        content = {
            "numbers": [1, -2.5, 1 << 80, True, None, 3 + 4j],
            "text": {"name": ("a", "b")},
            "size": torch.Size([2, 3]),
            "dtype": torch.bfloat16,
            "half": torch.ones(3, dtype=torch.bfloat16),
            "parameter": nn.Parameter(torch.ones(2, 2)),
        }
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.pt")
            weir.torch.save(path, net(), **content)
            loaded = weir.torch.load(path, net())
        for name in ("numbers", "text", "size", "dtype"):
            self.assertEqual(loaded[name], content[name])
        for name in ("half", "parameter"):
            self.assertTrue(torch.equal(loaded[name], content[name]))

    def test_load_runs_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.pt")
            ran = os.path.join(folder, "ran")

            class Evil:
                def __reduce__(self):
                    return os.mkdir, (ran,)

            for evil in (Evil(), nn.Linear(1, 1), print):
                for zipped in (True, False):
                    torch.save(
                        {"model": net().state_dict(), "more": evil},
                        path,
                        _use_new_zipfile_serialization=zipped,
                    )
                    with self.assertRaises(weir.InvalidArgument) as caught:
                        weir.torch.load(path, net())
                    self.assertIn(path, str(caught.exception))
            self.assertFalse(os.path.exists(ran))

    def test_load_takes_no_other_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.pt")
            script = torch.jit.script(net())
            torch.jit.save(script, path)
            for content in (None, b"", b"no zip", [1, 2], {"weights": 1}):
                if isinstance(content, bytes):
                    with open(path, "wb") as file:
                        file.write(content)
                elif content is not None:
                    torch.save(content, path)
                with self.assertRaisesRegex(
                    weir.InvalidArgument, "save did not write it"
                ):
                    weir.torch.load(path, net())

    def test_hyper_parameters_are_loaded(self):
        model = net()
        optimizer = self.distributed(
            torch.optim.SGD(model.parameters(), lr=0.1), model
        )
        state = optimizer.state_dict()
        state["param_groups"][0]["lr"] = 0.025
        optimizer.load_state_dict(state)
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.025)
        before = model[4].bias.detach().clone()
        loss_of(model, 0).backward()
        optimizer.step()
        torch.testing.assert_close(
            model[4].bias, before - 0.025 * model[4].bias.grad
        )

    # ----------------------------------------------------------------- errors

    def test_errors(self):
        model = net()
        optimizer = self.distributed(
            torch.optim.SGD(model.parameters(), lr=0.1), model
        )
        with self.assertRaisesRegex(weir.InvalidArgument, "a job has one"):
            self.distributed(torch.optim.SGD(model.parameters(), lr=0.1), model)
        with self.assertRaisesRegex(weir.InvalidArgument, "all of them"):
            optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
        optimizer.param_groups[0]["nesterov"] = True
        loss_of(model, 0).backward()
        with self.assertRaisesRegex(weir.InvalidArgument, "nesterov"):
            optimizer.step()
        optimizer.param_groups[0]["nesterov"] = False
        model[0].bias.grad[0] = float("nan")
        with self.assertRaisesRegex(weir.NonFinite, "'0.bias' has NaN"):
            optimizer.step()
        optimizer.zero_grad()
        loss_of(model, 1).backward()
        optimizer.step()
        self.again()
        with self.assertRaisesRegex(
            weir.WrongLayout, r"'0.weight' is \[30, 12\] on the server"
        ):
            other = nn.Sequential(nn.Linear(12, 31))
            self.distributed(torch.optim.SGD(other.parameters(), lr=0.1), other)
        with self.assertRaisesRegex(weir.InvalidArgument, r"\[7\]"):
            self.distributed(
                torch.optim.SGD([nn.Parameter(torch.ones(7))], lr=0.1), model
            )

    def test_after_finish(self):
        model = net()
        optimizer = self.distributed(
            torch.optim.SGD(model.parameters(), lr=0.1), model
        )
        optimizer.finish()
        optimizer.finish()
        loss_of(model, 0).backward()
        for call in (optimizer.step, optimizer.pull):
            with self.assertRaisesRegex(weir.Closed, "closed"):
                call()

    def test_a_lost_server_is_named(self):
        self.close()
        weir.torch.init(ps=self.servers.addresses, lost_after=1.0)
        model = net()
        optimizer = self.distributed(
            torch.optim.SGD(model.parameters(), lr=0.1), model
        )
        self.servers.processes[1].kill()
        with self.assertRaisesRegex(weir.ServerLost, self.servers.addresses[1]):
            for step in range(1000):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()
        self.assertGreater(loss_of(model, 0), 0.0)  # its memory is there


class SamplerTest(unittest.TestCase):
    def batches(self, rank, size, first_push=0, epoch=0, **options):
        weir.torch._context._context = weir.torch._context.Context(
            {}, rank, size, torch.device("cpu")
        )
        weir.torch._context.context().first_push = first_push
        sampler = weir.torch.DistributedSampler(
            range(23), batch_size=4, **options
        )
        sampler.set_epoch(epoch)
        loader = torch.utils.data.DataLoader(
            range(23), batch_size=4, sampler=sampler
        )
        read = [batch.tolist() for batch in loader]
        self.assertEqual(len(sampler), sum(len(b) for b in read))
        return read

    def test_every_sample_is_read_once_by_any_number_of_workers(self):
        whole = self.batches(0, 1)
        self.assertEqual(sorted(chain.from_iterable(whole)), list(range(23)))
        self.assertEqual([len(b) for b in whole], [4, 4, 4, 4, 4, 3])
        for size in (2, 3, 4, 7):
            shares = [self.batches(rank, size) for rank in range(size)]
            for number, batch in enumerate(whole):
                self.assertEqual(shares[number % size][number // size], batch)

    def test_epochs_are_dealt_on_from_each_other(self):
        # Six batches an epoch: batch 6 is the second push of rank 2 of 4.
        second = self.batches(0, 1, epoch=1)
        self.assertNotEqual(second, self.batches(0, 1))
        self.assertEqual(self.batches(2, 4, epoch=1)[0], second[0])
        self.assertEqual(self.batches(0, 4, epoch=1)[0], second[2])

    def test_a_restarted_worker_goes_on(self):
        all_of_it = self.batches(1, 2)
        self.assertEqual(self.batches(1, 2, first_push=2), all_of_it[2:])
        self.assertEqual(weir.torch.start_epoch(), 0)
        self.assertEqual(self.batches(1, 2, first_push=3), [])
        self.assertEqual(weir.torch.start_epoch(), 1)

    def test_it_counts_the_epochs_itself(self):
        dealt = [self.batches(1, 2, epoch=epoch) for epoch in range(3)]
        for first_push, start in ((0, 0), (4, 1)):
            for asked in (False, True):
                self.batches(1, 2, first_push)  # sets the place up
                sampler = weir.torch.DistributedSampler(range(23), 4)
                loader = torch.utils.data.DataLoader(
                    range(23), batch_size=4, sampler=sampler
                )
                begin = weir.torch.start_epoch() if asked else 0
                self.assertEqual(begin, start if asked else 0)
                read = []
                for _ in range(begin, 3):
                    epoch = [batch.tolist() for batch in loader]
                    self.assertEqual(len(sampler), sum(map(len, epoch)))
                    read += epoch
                every = list(chain.from_iterable(dealt))
                self.assertEqual(read, every[first_push:])

    def test_an_iterator_that_nobody_asks_is_no_epoch(self):
        # Such a loader makes two of its first epoch.
        whole = [self.batches(0, 1, epoch=epoch) for epoch in range(2)]
        sampler = weir.torch.DistributedSampler(range(23), 4)
        loader = torch.utils.data.DataLoader(
            range(23), batch_size=None, sampler=sampler, num_workers=1
        )
        for batches in whole:
            read = [int(sample) for sample in loader]
            self.assertEqual(read, list(chain.from_iterable(batches)))

    def test_in_order(self):
        self.assertEqual(self.batches(0, 2, shuffle=False)[1], [8, 9, 10, 11])
        with self.assertRaisesRegex(weir.InvalidArgument, "batch_size is 0"):
            weir.torch.DistributedSampler(range(3), batch_size=0)


class AloneTest(unittest.TestCase):
    def test_without_a_cluster_the_script_runs_by_itself(self):
        for name in ("TF_CONFIG", "WEIR_PS", "WEIR_CLUSTER"):
            os.environ.pop(name, None)
        weir.torch.init()
        self.assertEqual((weir.torch.rank(), weir.torch.size()), (0, 1))
        model, reference = net(), net()
        optimizer = weir.torch.DistributedOptimizer(
            torch.optim.NAdam(model.parameters()), model=model
        )
        plain = torch.optim.NAdam(reference.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        other = torch.optim.lr_scheduler.StepLR(plain, 1, 0.5)
        for step in range(3):
            for m, o, s in (
                (model, optimizer, scheduler),
                (reference, plain, other),
            ):
                o.zero_grad()
                loss_of(m, step).backward()
                o.step()
                s.step()
        for ours, theirs in zip(model.parameters(), reference.parameters()):
            self.assertTrue(torch.equal(ours, theirs))
        optimizer.pull()
        optimizer.report(loss=loss_of(model, 0), examples=4)  # to nobody
        with self.assertRaisesRegex(weir.InvalidArgument, "not a number"):
            optimizer.report(loss=torch.ones(2))
        optimizer.finish()

    def test_every_error_has_a_name_here(self):
        for name, error in vars(weir.errors).items():
            if isinstance(error, type):
                self.assertIs(getattr(weir.torch, name, None), error, name)

    def test_init_comes_first(self):
        weir.torch._context._context = None
        with self.assertRaisesRegex(weir.Closed, "init"):
            weir.torch.rank()


if __name__ == "__main__":
    unittest.main()
