"""Parameters in the memory that the servers write; see Staging.move_in."""

import copy
import io
import os
import signal
import threading
import time
import unittest
import weakref

import torch
from torch import nn

import weir
import weir.torch
from servers import TorchTestCase


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 30), nn.Tanh(), nn.Linear(30, 3))


def loss_of(model, step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(16, 12, generator=generator)
    return nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))


class TorchMemoryTest(TorchTestCase):
    def sgd(self, model, **options):
        return weir.torch.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model=model, **options
        )

    def is_moved(self, optimizer, name):
        entry = next(e for e in optimizer._entries if e.name == name)
        values = optimizer._client._memory[name]
        return entry.tensor.data_ptr() == values.ctypes.data

    def assert_trains_as_alone(self, model, optimizer, reference, steps=5):
        plain = torch.optim.SGD(reference.parameters(), lr=0.1)
        for step in range(steps):
            for m, o in ((model, optimizer), (reference, plain)):
                o.zero_grad()
                loss_of(m, step).backward()
                o.step()
        for ours, theirs in zip(model.parameters(), reference.parameters()):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)

    def test_values_arrive_in_plain_parameters(self):
        model, reference = net(), net()
        kept = list(model.parameters())
        optimizer = self.sgd(model)
        places = [p.data_ptr() for p in model.parameters()]
        for name, _ in model.named_parameters():
            self.assertTrue(self.is_moved(optimizer, name), name)
        self.assert_trains_as_alone(model, optimizer, reference)
        optimizer.pull()
        self.assertEqual([p.data_ptr() for p in model.parameters()], places)
        held = optimizer.param_groups[0]["params"]
        for before, now, group in zip(kept, model.parameters(), held):
            self.assertIs(before, now)
            self.assertIs(before, group)

    def test_others_stay_where_they_are(self):
        class Odd(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(2)
                self.plain = nn.Parameter(torch.randn(3, 12))
                self.transposed = nn.Parameter(torch.randn(12, 3).t())
                self.part = nn.Parameter(torch.randn(6, 12)[:3])
                self.shared = nn.Parameter(torch.randn(3, 12).share_memory_())
                self.wide = nn.Parameter(torch.randn(3, 12).double())
                self.narrow = nn.Parameter(torch.zeros(3, 12).bfloat16())
                self.seen = nn.Parameter(torch.randn(3, 12))
                self.register_buffer(
                    "view", self.seen.detach()[0], persistent=False
                )
                self.register_buffer("statistic", torch.zeros(3))

            def forward(self, x):
                weight = self.plain + self.transposed + self.part
                weight = weight + self.shared + self.seen + self.view
                return x @ (weight + self.wide).float().t()

        model, reference = Odd(), Odd()
        places = {name: p.data_ptr() for name, p in model.named_parameters()}
        optimizer = self.sgd(model)
        for name, parameter in model.named_parameters():
            stays = name != "plain"
            self.assertEqual(parameter.data_ptr() == places[name], stays, name)
            self.assertEqual(self.is_moved(optimizer, name), not stays, name)
        self.assertFalse(self.is_moved(optimizer, "statistic"))
        self.assert_trains_as_alone(model, optimizer, reference)
        self.assertTrue(torch.equal(model.view, model.seen[0]))

    def test_none_move_with_local_or_overlap(self):
        for option in ("local", "overlap"):
            with self.subTest(option):
                self.setUp()
                model, reference = net(), net()
                optimizer = self.sgd(model, **{option: True})
                self.assertFalse(self.is_moved(optimizer, "0.weight"))
                self.assert_trains_as_alone(model, optimizer, reference)
                self.doCleanups()

    def test_a_parameter_that_is_moved_away_is_copied_to(self):
        model, reference = net(), net()
        optimizer = self.sgd(model)
        model[0].share_memory()  # replaces what is in the storage
        model[2].weight.data = model[2].weight.data.clone()
        for name in ("0.weight", "0.bias", "2.weight"):
            self.assertFalse(self.is_moved(optimizer, name))
        self.assertTrue(self.is_moved(optimizer, "2.bias"))
        self.assert_trains_as_alone(model, optimizer, reference)

    def test_copies_and_files_are_of_the_tensor_alone(self):
        model = net()
        optimizer = self.sgd(model)
        file, plain = io.BytesIO(), io.BytesIO()
        torch.save(model.state_dict(), file)
        torch.save(net().state_dict(), plain)
        self.assertEqual(len(file.getvalue()), len(plain.getvalue()))
        copied, state = copy.deepcopy(model), copy.deepcopy(model.state_dict())
        before = [p.clone() for p in copied.parameters()]
        loss_of(model, 0).backward()
        optimizer.step()
        for was, now, in_state, ours in zip(
            before, copied.parameters(), state.values(), model.parameters()
        ):
            self.assertTrue(torch.equal(was, now))
            self.assertTrue(torch.equal(was, in_state))
            self.assertFalse(torch.equal(was, ours))
        file.seek(0)
        for was, loaded in zip(before, torch.load(file).values()):
            self.assertTrue(torch.equal(was, loaded))

    def test_the_model_outlives_the_client(self):
        model, reference = net(), net()
        optimizer = self.sgd(model)
        self.assert_trains_as_alone(model, optimizer, reference)
        optimizer.finish()
        weir.torch._context.context().optimizer = None
        del optimizer
        self.assert_trains_as_alone(
            model, torch.optim.SGD(model.parameters(), lr=0.1), reference
        )

    def test_autograd_knows_that_a_step_changed_them(self):
        model = nn.Sequential(nn.Linear(12, 4), nn.Linear(4, 3))
        optimizer = self.sgd(model)
        loss = loss_of(model, 0)
        loss.backward(retain_graph=True)
        optimizer.step()
        # As with an optimizer of torch.optim.
        with self.assertRaisesRegex(RuntimeError, "inplace operation"):
            loss.backward()

    def test_a_gradient_that_is_left_out(self):
        model = net()
        optimizer = self.sgd(model)
        model[2].share_memory()  # from here on copied to
        loss_of(model, 0).backward()
        model[0].bias.grad[0] = float("nan")
        # As another worker would.
        optimizer._client.push({"2.weight": torch.ones(3, 30)})
        with self.assertRaises(weir.NonFinite):
            optimizer.step()
        # What the servers have, in parameters of either kind.
        for name, parameter in model.named_parameters():
            self.assertTrue(
                torch.equal(
                    parameter.detach(),
                    torch.from_numpy(optimizer._client.values[name].copy()),
                )
            )

    def test_gradients_live_while_they_may_be_sent(self):
        weir.torch.init(ps=self.servers.addresses, worker_count=2)
        model = net()
        optimizer = self.sgd(model, mode="sync")
        loss_of(model, 0).backward()
        gradient = weakref.ref(model[0].weight.grad)

        def interrupt():
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            optimizer.step()  # the other worker never comes
        thread.join()
        optimizer.zero_grad(set_to_none=True)
        self.assertIsNotNone(gradient())

    def test_gradients_are_not_kept_after_a_step(self):
        model = net()
        optimizer = self.sgd(model)
        loss_of(model, 0).backward()
        gradient = weakref.ref(model[0].weight.grad)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        self.assertIsNone(gradient())

    def test_a_pull_brings_what_others_pushed(self):
        model = net()
        optimizer = self.sgd(model)
        before = model[0].weight.detach().clone()
        optimizer._client.push({"0.weight": torch.ones(30, 12)})
        self.assertTrue(torch.equal(model[0].weight, before))
        optimizer.pull()
        torch.testing.assert_close(model[0].weight.detach(), before - 0.1)


if __name__ == "__main__":
    unittest.main()
