"""What a model's parameters and buffers are on the servers."""

import copy
import pickle
import unittest

import torch
from torch import nn

import weir
import weir.torch
from servers import TorchTestCase, run_scripts
from weir.torch import _model

# A model whose buffers are not finite; the mask stays, `lowest` does not.
MASKED = """
import torch
from torch import nn

class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.top = nn.Linear(4, 4)
        mask = torch.full((4, 4), float("-inf")).triu(1)
        self.register_buffer("mask", mask)
        self.register_buffer("lowest", torch.tensor(float("inf")))

    def forward(self, x):
        with torch.no_grad():
            self.lowest.copy_(torch.minimum(self.lowest, x.min()))
        return torch.softmax(self.top(x) + self.mask, 1)[:, 0].sum()
"""


class Shared(nn.Module):
    """Two names of one module, and a buffer of two modules."""

    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.b = self.a
        self.c = nn.BatchNorm1d(2)
        self.c.running_mean = self.a[1].running_mean


class EntriesTest(unittest.TestCase):
    def names(self, model):
        found = _model.entries(model, [])
        every = [n for e in found for n in (e.name, *e.aliases)]
        self.assertEqual(len(every), len(set(every)))
        return [e.name for e in found], set(every)

    def test_every_name_of_the_state_dict_is_known(self):
        for model in (
            Shared(),
            # A wrapper of the script's own: its names are the script's.
            nn.ModuleDict({"module": nn.Linear(2, 2)}),
        ):
            _, every = self.names(model)
            self.assertEqual(every, set(model.state_dict()))
        clash = nn.Module()
        clash.weight = nn.Parameter(torch.ones(2))
        clash.module = nn.Linear(2, 2)
        names, _ = self.names(clash)
        self.assertEqual(names, ["weight", "module.weight", "module.bias"])

    def test_the_first_name_is_that_of_the_tensor(self):
        names, _ = self.names(Shared())
        self.assertEqual(names[:2], ["a.0.weight", "a.0.bias"])
        self.assertEqual(
            names[6:9],
            ["a.1.running_mean", "a.1.running_var", "a.1.num_batches_tracked"],
        )

    def test_torchs_wrappers_change_no_name(self):
        compiled = nn.Module()
        compiled._orig_mod = Shared()  # as torch.compile makes it
        plain = self.names(Shared())
        for model in (
            compiled,
            nn.DataParallel(Shared()),
            nn.DataParallel(nn.DataParallel(compiled)),
        ):
            self.assertEqual(self.names(model), plain)

    def test_values_that_float32_does_not_keep(self):
        for dtype, kept, lost in (
            (torch.int64, 2**40, 2**24 + 1),
            (torch.int64, -(2**63), 2**63 - 1),
            (torch.int32, 2**24, -(2**24) - 1),
            (torch.float64, 0.1, 1e300),
            (torch.float64, float("inf"), -1e300),
        ):
            with self.subTest(dtype=dtype, lost=lost):
                model = nn.Module()
                model.register_buffer("kept", torch.tensor([0, kept]).to(dtype))
                self.assertEqual(len(_model.entries(model, [])), 1)
                buffer = torch.tensor([0, lost], dtype=dtype)
                model.register_buffer("lost", buffer)
                with self.assertRaisesRegex(
                    weir.InvalidArgument, "'lost' has the value"
                ) as caught:
                    _model.entries(model, [])
                self.assertIn(f" {lost},", str(caught.exception))


class ServedTest(TorchTestCase):
    server_count = 1

    def test_a_mask_of_infinities_is_beside_what_trains(self):
        script = (
            MASKED
            + """
import weir.torch as weir
weir.init(pull_encoding="int8")  # which leaves blocks with buffers alone
model, reference = Masked(), Masked()
optimizer = weir.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), model=model, mode="sync")
plain = torch.optim.SGD(reference.parameters(), lr=0.1)
for step in range(3):
    x = torch.linspace(-1.0 - step, 1.0, 16).reshape(4, 4)
    for m, o in ((model, optimizer), (reference, plain)):
        o.zero_grad()
        m(x).backward()
        o.step()
for ours, theirs in zip(model.parameters(), reference.parameters()):
    torch.testing.assert_close(ours, theirs)
assert torch.equal(model.mask, reference.mask), model.mask
optimizer.pull()
print(model.lowest.item(), optimizer._client.values["lowest"])
"""
        )
        for output in run_scripts(self.servers, script, 2):
            self.assertEqual(output.split(), ["-3.0", "-3.0"])

    def test_a_model_is_loaded_before_it_is_declared(self):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        saved = copy.deepcopy(model.state_dict())
        optimizer = weir.torch.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model=model
        )
        other = copy.deepcopy(model)
        other.load_state_dict(saved)
        other = pickle.loads(pickle.dumps(model))
        other.load_state_dict(saved)
        for load in (
            lambda: model.load_state_dict(saved),
            lambda: nn.ModuleList([model]).load_state_dict(
                {"0." + name: value for name, value in saved.items()}
            ),
            lambda: model[0].load_state_dict(nn.Linear(2, 2).state_dict()),
        ):
            with self.assertRaisesRegex(
                weir.InvalidArgument, "load before DistributedOptimizer"
            ):
                load()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        trained = copy.deepcopy(model.state_dict())
        model.load_state_dict(saved)  # as for an evaluation
        optimizer.pull()
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, trained[name]), name)

    def test_a_scripted_model_is_declared(self):
        model = torch.jit.script(nn.Linear(2, 1))
        optimizer = weir.torch.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model=model
        )
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        self.assertEqual(optimizer.pushes, 1)


if __name__ == "__main__":
    unittest.main()
