"""Embedding tables: weir.Client, and weir.torch against PyTorch's own."""

import os
import signal
import threading
import unittest
from unittest import mock

import numpy as np
import torch
from torch import nn

import weir
import weir.torch
from servers import Servers, TorchTestCase

IDS = (1000, 300, 50)  # of the three tables
DIM = 8
STEPS = 50


class ClientTablesTest(unittest.TestCase):
    def setUp(self):
        self.servers = Servers(2)
        self.addCleanup(self.servers.__exit__)

    def connect(self, **options):
        client = weir.connect(self.servers.addresses, **options)
        self.addCleanup(client.close)
        return client

    def declared(self, *tables, **options):
        client = self.connect()
        client.declare(
            {"w": np.zeros(3)},
            tables or [zeros("user", 2), zeros("movie", 1)],
            optimizer=weir.SGD(lr=1.0),
            **options,
        )
        return client

    def rows_of(self, client, table):
        return sum(s["tables"][table]["rows"] for s in client.status())

    def test_rows_come_and_go_in_any_shape(self):
        client = self.declared()
        ids = np.array([[7, 3], [2**64 - 1, 7]], np.uint64)
        gradients = np.arange(8, dtype=np.float64).reshape(2, 2, 2)
        client.push_pull({"w": np.ones(3)}, rows={"user": (ids, gradients)})
        np.testing.assert_array_equal(client.values["w"], -np.ones(3))
        rows = client.lookup("user", ids)
        self.assertEqual((rows.shape, rows.dtype), ((2, 2, 2), np.float32))
        np.testing.assert_array_equal(rows[0, 0], [-6, -8])  # 7 came twice
        np.testing.assert_array_equal(rows[0, 1], [-2, -3])
        np.testing.assert_array_equal(rows[1, 0], [-4, -5])
        client.push(rows={"user": ([3, 3], [[1, 1], [2, 2]])})
        np.testing.assert_array_equal(client.lookup("user", [3]), [[-5, -6]])
        self.assertEqual(client.lookup("movie", []).shape, (0, 1))
        self.assertEqual(client.lookup("movie", 5).shape, (1,))

    def test_several_tables_are_fetched_ahead(self):
        client = self.declared(mode="sync")
        for step in range(4):
            client.start_lookup({"user": [[1, 2]], "movie": [5]})
            rows = client.wait_lookup()
            self.assertEqual(rows["user"].shape, (1, 2, 2))
            self.assertEqual(rows["movie"][0, 0], -step)
            client.push_pull(rows={"movie": ([5], [[1.0]])})
        client.start_lookup({"user": [1]})
        with self.assertRaisesRegex(weir.Closed, "is under way"):
            client.lookup("user", [1])
        client.push_pull()
        client.wait_lookup()
        with self.assertRaisesRegex(weir.InvalidArgument, "for step 5"):
            client.push(rows={"user": ([1], [[1.0, 1.0]])})
        with self.assertRaisesRegex(weir.Closed, "no lookup is under way"):
            client.wait_lookup()

    def test_ctrl_c_ends_a_wait_for_rows(self):
        client = self.connect(worker_count=2)
        client.declare({}, [zeros("user", 2)], mode="sync")
        client.push()
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            client.lookup("user", [1])  # the other worker never comes
        timer.join()

    def test_a_job_of_tables_alone(self):
        client = self.connect()
        client.declare({}, tables=[zeros("user", 2)])
        client.push_pull(rows={"user": ([1], [[1, 2]])})
        np.testing.assert_array_equal(client.lookup("user", [1]), [[-1, -2]])
        client.close()
        again = self.connect()
        again.declare({}, tables=[zeros("user", 2)])
        self.assertEqual(again.pushes, 1)
        again.finish()

    def test_reading_makes_no_row(self):
        client = self.declared(weir.Table("user", dim=4))
        read = client.lookup("user", [1, 2, 3], train=False)
        self.assertEqual(self.rows_of(client, "user"), 0)
        np.testing.assert_array_equal(client.lookup("user", [1, 2, 3]), read)
        self.assertEqual(self.rows_of(client, "user"), 3)
        self.assertLess(np.abs(read).max(), 0.05)
        self.assertGreater(np.abs(read).max(), 0.0)

    def test_a_table_has_its_learning_rate(self):
        client = self.declared(
            weir.Table("user", 1, weir.SGD(lr=0.5), "constant", 0.0)
        )
        one = {"user": ([1], [[1.0]])}
        client.push(rows=one)
        self.assertEqual(client.lookup("user", [1])[0, 0], -0.5)
        client.push(rows=one, table_lr={"user": 2.0})
        self.assertEqual(client.lookup("user", [1])[0, 0], -2.5)

    def test_bad_input_is_named(self):
        client = self.declared()
        for call, message in [
            (lambda: client.lookup("users", [1]), "no table is named 'users'"),
            (lambda: client.lookup("user", [4, -3]), "id -3 is negative"),
            (lambda: client.lookup("user", [0.5]), "ids are float64"),
            (
                lambda: client.push(rows={"user": ([1], [[1.0]])}),
                r"gradients of table 'user' are \[1, 1\]; \[1, 2\] is wanted",
            ),
            (
                lambda: client.push(rows={"user": ([-1], [[1.0, 1.0]])}),
                "id -1 is negative",
            ),
            (lambda: client.push(rows={"user": 5}), r"give \(ids, gradients\)"),
            (lambda: client.push(rows={"x": ([1], [[1]])}), "no table is"),
            (lambda: client.push(table_lr={"x": 1.0}), "no table is named"),
            (lambda: weir.Table("user", dim=1.5), "dim 1.5 is not a number"),
            (
                lambda: weir.Table("t", 1, weir.SGD(lr=1.0, momentum=0.9)),
                "SGD of rows has no momentum",
            ),
            (
                lambda: weir.Table("t", 1, weir.Adam()),
                "SparseAdam or FTRL|rows have no optimizer Adam",
            ),
            (lambda: weir.Table("t", 1, init="glorot"), "no rows begin as"),
            (
                lambda: self.connect().declare({}, [weir.Table("User", 1)]),
                "table 'User': name: 'User' is not 1 to 64",
            ),
            (
                lambda: self.connect().declare({}, [weir.Table("user", 0)]),
                "table 'user': dim: 0 is not",
            ),
        ]:
            with (
                self.subTest(message),
                self.assertRaisesRegex(weir.InvalidArgument, message),
            ):
                call()
        self.assertEqual(client.pushes, 0)
        with self.assertRaisesRegex(
            weir.NonFinite, "gradient of 'movie' has NaN"
        ):
            client.push(rows={"movie": ([1, 2], [[1.0], [np.nan]])})

    def test_a_table_that_differs_is_named(self):
        self.declared()
        for tables, message in [
            (
                [zeros("user", 4), zeros("movie", 1)],
                "rows of table 'user' have 2",
            ),
            ([zeros("user", 2)], "2 tables on the server, 1 here"),
            ([zeros("movie", 1), zeros("user", 2)], "table 0 is 'user'"),
            (
                [
                    zeros("user", 2, optimizer=weir.FTRL()),
                    zeros("movie", 1),
                ],
                "optimizer of table 'user' is sgd on the server, ftrl here",
            ),
        ]:
            with self.assertRaisesRegex(weir.WrongLayout, message):
                self.connect().declare(
                    {"w": np.zeros(3)}, tables, optimizer=weir.SGD(lr=1.0)
                )


def zeros(name, dim, optimizer=weir.SGD(lr=1.0)):
    return weir.Table(name, dim, optimizer, "constant", 0.0)


# ------------------------------------------------------------------ PyTorch


def batch(step, rows=16):
    """13 numbers, a bag of ids of each table, clicks."""
    generator = torch.Generator().manual_seed(step)
    numbers = torch.randn(rows, 13, generator=generator)
    bags = []
    for count in IDS:
        # A power law: some ids are in every batch, others seldom in one.
        share = torch.rand(rows * 3, generator=generator) ** 4
        ids = (share * count).long()
        sizes = torch.randint(0, 4, (rows,), generator=generator)  # some empty
        offsets = torch.cat([torch.zeros(1).long(), sizes.cumsum(0)[:-1]])
        bags.append((ids[: int(sizes.sum())], offsets))
    # What there is to learn: each id has an effect.
    signal = numbers[:, 0]
    for n, (ids, offsets) in enumerate(bags):
        effects = torch.sin(torch.arange(IDS[n]) * 12.9 + n)[:, None]
        signal = (
            signal
            + nn.functional.embedding_bag(ids, effects, offsets, mode="sum")[
                :, 0
            ]
        )
    return numbers, bags, (signal > 0).float()


class Dlrm(nn.Module):
    """Naumov et al. 2019, small: bottom, dots of all pairs, top."""

    def __init__(self, embeddings):
        super().__init__()
        torch.manual_seed(3)
        self.bottom = nn.Sequential(nn.Linear(13, DIM), nn.ReLU())
        self.embeddings = nn.ModuleList(embeddings)
        self.top = nn.Sequential(
            nn.Linear(DIM + 6, 16), nn.ReLU(), nn.Linear(16, 1)
        )

    def forward(self, numbers, bags):
        dense = self.bottom(numbers)
        vectors = torch.stack(
            [dense] + [e(i, o) for e, (i, o) in zip(self.embeddings, bags)],
            dim=1,
        )
        dots = vectors @ vectors.transpose(1, 2)
        rows, columns = torch.tril_indices(4, 4, offset=-1)
        return self.top(torch.cat([dense, dots[:, rows, columns]], 1))[:, 0]


def loss_of(model, step, rows=16):
    numbers, bags, clicks = batch(step, rows)
    return nn.functional.binary_cross_entropy_with_logits(
        model(numbers, bags), clicks
    )


def our_model(optimizer, mode="sum", **table):
    return Dlrm(
        [
            weir.torch.EmbeddingBag(
                count,
                DIM,
                mode=mode,
                name=f"c{n}",
                optimizer=optimizer,
                init="normal",
                init_scale=0.3,
                **table,
            )
            for n, count in enumerate(IDS)
        ]
    )


RULES = {
    "sgd": (
        weir.SGD(lr=0.2),
        lambda p: torch.optim.SGD(p, lr=0.2),
    ),
    "adagrad": (
        weir.Adagrad(lr=0.05, initial_accumulator=0.1),
        lambda p: torch.optim.Adagrad(
            p, lr=0.05, initial_accumulator_value=0.1
        ),
    ),
    "adam": (
        weir.SparseAdam(lr=0.01),
        lambda p: torch.optim.SparseAdam(list(p), lr=0.01),
    ),
}


class TorchTablesTest(TorchTestCase):
    def distributed(self, model, lr=0.1, **options):
        return weir.torch.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=lr), model=model, **options
        )

    def copy_of(self, model, optimizer, mode="sum"):
        """`model` with PyTorch's tables, and the rows that the servers have."""
        reference = Dlrm(
            [nn.EmbeddingBag(n, DIM, mode=mode, sparse=True) for n in IDS]
        )
        dense = {
            name: value
            for name, value in model.state_dict().items()
            if not name.startswith("embeddings")
        }
        reference.load_state_dict(dense, strict=False)
        with torch.no_grad():
            for n, table in enumerate(reference.embeddings):
                rows = optimizer._client.lookup(
                    f"c{n}", np.arange(IDS[n]), train=False
                )
                table.weight.copy_(torch.from_numpy(rows))
        return reference

    def test_every_step_is_that_of_pytorch(self):
        for mode in ("sum", "mean"):
            for name, (rule, of_torch) in RULES.items():
                with self.subTest(rule=name, mode=mode):
                    self.doCleanups()
                    self.setUp()
                    self.compare(name, rule, of_torch, mode)

    def compare(self, name, rule, of_torch, mode):
        model = our_model(rule, mode)
        optimizer = self.distributed(model, mode="sync")
        reference = self.copy_of(model, optimizer, mode)
        dense = torch.optim.SGD(
            [*reference.bottom.parameters(), *reference.top.parameters()],
            lr=0.1,
        )
        sparse = of_torch(reference.embeddings.parameters())
        largest, first, last = 0.0, None, None
        for step in range(STEPS):
            losses = []
            for one, steps in (
                (model, [optimizer]),
                (reference, [dense, sparse]),
            ):
                for each in steps:
                    each.zero_grad()
                loss = loss_of(one, step)
                loss.backward()
                for each in steps:
                    each.step()
                losses.append(loss.item())
            ours, theirs = losses
            largest = max(largest, abs(ours - theirs) / abs(theirs))
            first = theirs if first is None else first
            last = theirs
        print(
            f"{name} {mode}: loss {first:.4f} -> {last:.4f}, largest "
            f"relative difference {largest:.2e}"
        )
        self.assertLessEqual(largest, 1e-4)
        moved = self.copy_of(model, optimizer, mode)
        for ours, theirs in zip(moved.embeddings, reference.embeddings):
            torch.testing.assert_close(
                ours.weight, theirs.weight, rtol=1e-4, atol=1e-6
            )

    # ---------------------------------------------------------------- modules

    def rows(self, optimizer, table, count):
        return torch.from_numpy(
            optimizer._client.lookup(table, np.arange(count), train=False)
        )

    def test_modules_that_share_a_table_with_padding_and_accumulation(self):
        class Ours(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(5)
                one = {"name": "movie", "optimizer": weir.torch.SGD(lr=0.5)}
                self.word = weir.torch.Embedding(20, 4, -1, **one)
                self.bag = weir.torch.EmbeddingBag(
                    20, 4, mode="mean", padding_idx=3, **one
                )
                self.top = nn.Linear(4, 1)

            def forward(self, words, bags):
                return self.top(self.word(words).sum(1) + self.bag(bags))

        ours = Ours()
        optimizer = self.distributed(ours, lr=0.1, mode="sync")
        start = self.rows(optimizer, "movie", 20)
        weight = start.clone().requires_grad_()
        top = nn.Linear(4, 1)
        top.load_state_dict(ours.top.state_dict())
        generator = torch.Generator().manual_seed(6)

        def theirs(words, bags):
            table = torch.cat([weight[:19], torch.zeros(1, 4)])
            vectors = nn.functional.embedding(words, table, padding_idx=19)
            pooled = nn.functional.embedding_bag(
                bags, weight, padding_idx=3, mode="mean"
            )
            return top(vectors.sum(1) + pooled)

        def inputs():
            words = torch.randint(0, 20, (6, 5), generator=generator)
            bags = torch.randint(0, 19, (6, 4), generator=generator)
            bags[2] = 3  # nothing but padding
            return words, bags

        for _ in range(10):
            batches = [inputs(), inputs()]
            optimizer.zero_grad()
            for one in batches:
                ours(*one).pow(2).mean().backward()
            optimizer.step()
            weight.grad = None
            top.zero_grad()
            for one in batches:
                theirs(*one).pow(2).mean().backward()
            with torch.no_grad():
                weight -= 0.5 * weight.grad
                for p in top.parameters():
                    p -= 0.1 * p.grad
        after = self.rows(optimizer, "movie", 20)
        torch.testing.assert_close(after, weight.detach())
        torch.testing.assert_close(after[19], start[19])  # padding of words
        self.assertGreater((after - start).abs().max(), 0.01)

    def test_bags_are_those_of_pytorch(self):
        ids = torch.tensor([4, 9, 4, 1, 0, 7, 7, 2])
        offsets = torch.tensor([0, 3, 3, 5, 8])
        for mode in ("sum", "mean", "max"):
            self.doCleanups()
            self.setUp()
            bag = weir.torch.EmbeddingBag(
                None,
                3,
                mode=mode,
                name="t",
                include_last_offset=True,
                optimizer=weir.torch.SGD(lr=1.0),
                init="normal",
            )
            model = nn.Sequential(bag, nn.Linear(3, 2))
            optimizer = self.distributed(model, lr=1e-3)
            start = self.rows(optimizer, "t", 10)
            theirs = nn.EmbeddingBag.from_pretrained(
                start, freeze=False, mode=mode, include_last_offset=True
            )
            weights = [torch.rand(8).requires_grad_() for _ in range(2)]
            weights[1].data.copy_(weights[0].data)
            outputs = []
            for one, of_ids in ((bag, weights[0]), (theirs, weights[1])):
                more = {"per_sample_weights": of_ids} if mode == "sum" else {}
                outputs.append(one(ids, offsets, **more))
                outputs[-1].pow(2).sum().backward()
            torch.testing.assert_close(*outputs)
            self.assertEqual(outputs[0][1].abs().max(), 0.0)  # an empty bag
            if mode == "sum":
                torch.testing.assert_close(weights[0].grad, weights[1].grad)
            optimizer.step()
            torch.testing.assert_close(
                self.rows(optimizer, "t", 10), start - theirs.weight.grad
            )

    def small(self, **options):
        bag = weir.torch.EmbeddingBag(
            100,
            2,
            name="t",
            mode="sum",
            init="constant",
            init_scale=0.0,
            optimizer=weir.torch.SGD(lr=1.0),
            **options,
        )
        model = nn.Sequential(bag, nn.Linear(2, 1))
        with torch.no_grad():
            model[1].weight.fill_(1.0)
        return model, bag

    def test_evaluation_touches_nothing(self):
        model, bag = self.small()
        optimizer = self.distributed(model)

        def count():
            return sum(
                s["tables"]["t"]["rows"] for s in optimizer._client.status()
            )

        model.eval()
        bag(torch.tensor([[1, 2]]))
        model.train()
        with torch.no_grad():
            bag(torch.tensor([[1, 2]]))
        self.assertEqual(count(), 0)
        bag(torch.tensor([[1, 2]]))
        self.assertEqual(count(), 2)
        self.assertEqual(list(bag.state_dict()), [])
        self.assertEqual(list(bag.parameters()), [])

    def test_gradients_wait_for_one_step(self):
        model, bag = self.small()
        optimizer = self.distributed(model, lr=1e-9)
        one = torch.tensor([[5]])

        def row():
            return self.rows(optimizer, "t", 6)[5, 0].item()

        bag(one).sum().backward()
        optimizer.zero_grad()  # forgets it
        optimizer.step()
        self.assertEqual(row(), 0.0)
        bag(one).sum().backward()
        optimizer.step()
        optimizer.step()  # it is not pushed again
        self.assertEqual(row(), -1.0)
        bag.lr = 0.25  # as a schedule would set it
        bag(one).sum().backward()
        optimizer.step()
        self.assertEqual(row(), -1.25)
        # What GradScaler sets.
        optimizer.grad_scale = torch.tensor(4.0)
        optimizer.found_inf = torch.tensor(0.0)
        bag(one).sum().backward()
        optimizer.step()
        self.assertEqual(row(), -1.25 - 0.25 / 4.0)
        optimizer.found_inf = torch.tensor(1.0)
        bag(one).sum().backward()
        optimizer.step()
        self.assertEqual(row(), -1.25 - 0.25 / 4.0)
        optimizer.grad_scale = None
        optimizer.found_inf = torch.tensor(0.0)
        bag(one).sum().backward()
        with self.assertRaisesRegex(weir.InvalidArgument, "unscale_"):
            optimizer.step()

    def test_two_backwards_through_one_forward_add_up(self):
        ids = torch.tensor([[5]])

        def train(model, bag):
            optimizer = self.distributed(model, lr=1e-9)
            out = bag(ids)
            out.sum().backward(retain_graph=True)
            (10 * out.sum()).backward()
            optimizer.step()
            return optimizer

        optimizer = train(*self.small())
        self.assertEqual(self.rows(optimizer, "t", 6)[5, 0], -11.0)
        self.close()
        weir.torch._context._context = weir.torch._context.Context(
            None, 0, 1, torch.device("cpu")
        )
        model, bag = self.small()
        train(model, bag)
        self.assertEqual(bag(ids)[0, 0], -11.0)

    def test_overlap_and_the_other_modes_push_rows(self):
        for options in (
            {"overlap": True},
            {"mode": "ssp", "staleness": 2},
            {"mode": "sync", "overlap": True},
        ):
            with self.subTest(options):
                self.doCleanups()
                self.setUp()
                model, _ = self.small()
                optimizer = self.distributed(model, lr=1e-9, **options)
                for _ in range(4):
                    optimizer.zero_grad()
                    model(torch.tensor([[5, 7, 7]])).sum().backward()
                    optimizer.step()
                rows = self.rows(optimizer, "t", 8)
                torch.testing.assert_close(rows[5], torch.full((2,), -4.0))
                torch.testing.assert_close(rows[7], torch.full((2,), -8.0))

    def test_alone_is_what_servers_do(self):
        rules = [rule for rule, _ in RULES.values()] + [
            weir.RowwiseAdagrad(lr=0.05, initial_accumulator=0.1),
            weir.SparseAdam(lr=0.01, per_row_step=True),
            weir.FTRL(lr=0.05, l1=0.01, l2=0.1, l2_shrinkage=0.01, beta=0.5),
            weir.FTRL(lr=0.05, l1=0.001, l21=0.01),
        ]
        for rule in rules:
            with self.subTest(rule):
                self.doCleanups()
                self.setUp()
                model = our_model(rule)
                optimizer = self.distributed(model, mode="sync")
                start = [
                    self.rows(optimizer, f"c{n}", count)
                    for n, count in enumerate(IDS)
                ]
                self.train(model, optimizer)
                served = [
                    self.rows(optimizer, f"c{n}", count)
                    for n, count in enumerate(IDS)
                ]
                self.close()
                weir.torch._context._context = weir.torch._context.Context(
                    None, 0, 1, torch.device("cpu")
                )
                alone = our_model(rule)
                optimizer = self.distributed(alone)
                rows = weir.torch._context.context().rows
                for n, values in enumerate(start):
                    local = rows._local[f"c{n}"]
                    local._place(np.arange(IDS[n]).astype(np.uint64))
                    local._rows["values"][: IDS[n]] = values.numpy()
                self.train(alone, optimizer)
                for n, expected in enumerate(served):
                    found = rows._local[f"c{n}"]._rows["values"][: IDS[n]]
                    moved = (expected - start[n]).norm()
                    error = (torch.from_numpy(found) - expected).norm()
                    self.assertGreater(moved, 0.01)
                    self.assertLessEqual(error, 1e-4 * moved)

    def train(self, model, optimizer):
        for step in range(20):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()

    def test_alone_reads_make_no_row_and_repeat(self):
        weir.torch._context._context = weir.torch._context.Context(
            None, 0, 1, torch.device("cpu")
        )
        bag = weir.torch.Embedding(None, 3, name="t")
        model = nn.Sequential(bag, nn.Linear(3, 1))
        optimizer = self.distributed(model)
        ids = torch.tensor([2**62, 5])
        model.eval()
        first = bag(ids)
        rows = weir.torch._context.context().rows
        self.assertEqual(len(rows._local["t"]._places), 0)
        model.train()
        torch.testing.assert_close(bag(ids), first)
        self.assertEqual(len(rows._local["t"]._places), 2)
        model(ids).sum().backward()
        optimizer.step()
        self.assertFalse(torch.equal(bag(ids), first))

    def test_alone_with_an_optimizer_that_calls_its_closure_often(self):
        weir.torch._context._context = weir.torch._context.Context(
            None, 0, 1, torch.device("cpu")
        )
        model, _ = self.small()
        optimizer = weir.torch.DistributedOptimizer(
            torch.optim.LBFGS(model.parameters(), max_iter=3), model=model
        )

        def closure():
            optimizer.zero_grad()
            loss = model(torch.tensor([[5]])).square().sum()
            loss.backward()
            return loss

        before = model[1].bias.item()
        self.assertGreater(optimizer.step(closure), 0.0)
        self.assertNotEqual(model[1].bias.item(), before)

    def test_rows_are_fetched_ahead(self):
        bag, word = (
            weir.torch.EmbeddingBag(
                None,
                2,
                name="t",
                mode="sum",
                optimizer=weir.SGD(lr=1.0),
                init="constant",
                init_scale=0.0,
            ),
            weir.torch.Embedding(None, 2, name="u"),
        )
        model = nn.Sequential(bag, nn.Linear(2, 1))
        model.word = word
        for mode in ("async", "sync"):
            self.doCleanups()
            self.setUp()
            optimizer = self.distributed(model, lr=1e-9, mode=mode)
            rows = weir.torch._context.context().rows
            rows.lookup = mock.Mock(side_effect=rows.lookup)
            ids = torch.tensor([[4, 9]])
            for step in range(3):
                weir.torch.prefetch({bag: ids, word: ids[0]})
                out = bag(ids.clone())  # the same ids
                torch.testing.assert_close(out, torch.full((1, 2), -2.0 * step))
                word(ids[0])
                rows.lookup.assert_not_called()
                out.sum().backward()
                optimizer.step()
            weir.torch.prefetch({bag: ids})
            self.assertEqual(bag(ids[:, :1])[0, 0], -3.0)  # others
            self.assertEqual(rows.lookup.call_count, 1)
            weir.torch.prefetch({bag: ids})
            ids.copy_(torch.tensor([[8, 9]]))  # the script uses it again
            self.assertEqual(bag(ids)[0, 0], -3.0)
            self.assertEqual(rows.lookup.call_count, 2)
            weir.torch.prefetch({bag: ids})
            model.eval()
            self.assertEqual(word(ids).shape, (1, 2, 2))
            self.assertEqual(rows.lookup.call_count, 3)
            model.train()

    def test_bad_input_is_named(self):
        model, bag = self.small()
        with self.assertRaisesRegex(weir.torch.Closed, "DistributedOptimizer"):
            bag(torch.tensor([[1]]))
        other = weir.torch.Embedding(100, 4, name="t")
        with self.assertRaisesRegex(weir.InvalidArgument, "share table 't'"):
            self.distributed(nn.Sequential(model, other))
        optimizer = self.distributed(model)
        for ids, message in [
            (torch.tensor([[4, -2]]), "id -2 is negative"),
            (torch.tensor([[100]]), "id 100 is not below num_embeddings 100"),
            (torch.tensor([[0.5]]), "ids are torch.float32"),
        ]:
            with self.assertRaisesRegex(weir.InvalidArgument, message):
                bag(ids)
        stranger = weir.torch.Embedding(None, 4, name="u")
        with self.assertRaisesRegex(
            weir.torch.Closed, "table 'u' is not declared"
        ):
            stranger(torch.tensor([1]))
        with self.assertRaisesRegex(weir.InvalidArgument, "no mode is called"):
            weir.torch.EmbeddingBag(None, 4, name="u", mode="min")
        (bag(torch.tensor([[1]])) * float("inf")).sum().backward()
        with self.assertRaisesRegex(weir.NonFinite, "gradient of 't' has NaN"):
            optimizer.step()
        model(torch.tensor([[1]])).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    unittest.main()
