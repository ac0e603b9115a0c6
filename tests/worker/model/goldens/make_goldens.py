#!/usr/bin/python3
"""Writes goldens.txt: losses, gradients and outputs of small models by PyTorch.

Run:  /usr/bin/python3 tests/worker/model/goldens/make_goldens.py
Everything is computed in float64 from float32 inputs, so that the test's
tolerance is about Weir's own rounding. Lines of the file:
  version TEXT
  case NAME
  model TEXT             a weir.Model in one line of text format
  shape D...             of one sample
  rows N
  param NAME V...        value before the step
  features V... / labels V...
  loss V                 training mode, mean over rows
  grad NAME V...         of a buffer: the batch's statistic
  table NAME DIM         and of a model that reads tables, in this order:
  bags FEATURE OFFSET... / ids FEATURE ID... / weights FEATURE V... (or none)
  row TABLE ID V...      before the step
  rowgrad TABLE ID V...
  outputs V...           evaluation mode, logits or predictions
  end
"""

import itertools
import os

import torch
import torch.nn.functional as F

torch.manual_seed(20261121)
torch.set_default_dtype(torch.float64)


def rand(*shape):
    return torch.rand(*shape, dtype=torch.float32).double() - 0.5


class Case:
    """Parameters by Weir's names; layers in Weir's layouts."""

    def __init__(self, name, model, shape, rows, labels):
        self.name, self.model, self.shape = name, model, shape
        self.rows, self.labels = rows, labels
        self.features = rand(rows, *shape) * 4
        self.params = {}
        self.stats = {}
        self.training = True
        self.tables, self.bags = {}, {}

    def table(self, name, dim):
        """Rows of ids 0 to 9; of all the batch uses some."""
        self.tables[name] = rand(10, dim).requires_grad_()

    def feature(self, name, offsets, ids, weights=None):
        self.bags[name] = (torch.tensor(offsets), torch.tensor(ids), weights)

    def embedding_bag(self, table, features, mode="sum"):
        outputs = []
        for name in features:
            offsets, ids, weights = self.bags[name]
            outputs.append(
                F.embedding_bag(
                    ids,
                    self.tables[table],
                    offsets,
                    mode=mode,
                    per_sample_weights=weights if mode == "sum" else None,
                    include_last_offset=True,
                )
            )
        return torch.stack(outputs, 1)

    def cross(self, name, x0, layers):
        x, n = x0, x0.shape[1]
        for layer in range(layers):
            w = self.param(f"{name}/kernel_{layer}", n, n)
            x = x0 * (x @ w + self.param(f"{name}/bias_{layer}", n)) + x
        return x

    def param(self, name, *shape):
        if name not in self.params:
            self.params[name] = rand(*shape).requires_grad_()
        return self.params[name]

    def dense(self, name, x, units, bias=True):
        w = self.param(name + "/kernel", x.shape[1], units)
        y = x @ w
        return y + self.param(name + "/bias", units) if bias else y

    def conv(self, name, x, filters, size, stride=1, padding=0, bias=True):
        w = self.param(name + "/kernel", filters, x.shape[1], size, size)
        b = self.param(name + "/bias", filters) if bias else None
        return F.conv2d(x, w, b, stride, padding)

    def layer_norm(self, name, x, eps=1e-5):
        n = x.shape[-1]
        return F.layer_norm(
            x,
            [n],
            self.param(name + "/scale", n),
            self.param(name + "/offset", n),
            eps,
        )

    def batch_norm(self, name, x, eps=1e-5):
        c = x.shape[1]
        scale = self.param(name + "/scale", c)
        offset = self.param(name + "/offset", c)
        for buffer in ("moving_mean", "moving_variance"):
            key = name + "/" + buffer
            if key not in self.params:
                self.params[key] = rand(c) + 1.0
        mean = self.params[name + "/moving_mean"]
        var = self.params[name + "/moving_variance"]
        if not self.training:
            return F.batch_norm(x, mean, var, scale, offset, False, 0.0, eps)
        # With momentum 1 PyTorch's buffers become the batch's statistics.
        new_mean, new_var = mean.clone(), var.clone()
        y = F.batch_norm(x, new_mean, new_var, scale, offset, True, 1.0, eps)
        self.stats[name + "/moving_mean"] = new_mean
        self.stats[name + "/moving_variance"] = new_var
        return y


def mlp(c):
    x = torch.relu(c.dense("h", c.features, 8))
    x = torch.tanh(c.layer_norm("n", x))
    return c.dense("out", x, 4, bias=False)


def convnet(c):
    x = torch.relu(
        c.batch_norm("b1", c.conv("c1", c.features, 4, 3, padding=1))
    )
    x = F.max_pool2d(x, 2)
    x = torch.relu(c.conv("c2", x, 5, 3, stride=2, padding=1, bias=False))
    x = F.avg_pool2d(x, 2, 1, 1)
    x = c.layer_norm("ln", x)
    return c.dense("out", x.flatten(1), 3)


def wide_and_deep(c):
    deep = torch.sigmoid(c.dense("deep", c.features, 5))
    return c.dense("out", torch.cat([deep, c.features], 1), 1)


def residual(c):
    a = c.batch_norm("norm", c.dense("a", c.features, 6))
    b = c.dense("b", torch.tanh(a), 6)
    return c.dense("out", torch.sigmoid(a + b), 2)


def pooled(c):
    x = F.max_pool2d(c.conv("c", c.features, 3, 2), 3, 2, 1)
    return c.dense("out", torch.tanh(x).flatten(1), 2)


def dlrm(c):
    bottom = torch.tanh(c.dense("bottom", c.features, 4))
    e = c.embedding_bag("t", ["A", "B", "C"])
    vectors = torch.cat(
        [
            bottom[:, None, :],
            e,
            c.embedding_bag("t", ["C", "A"], "mean"),
            c.embedding_bag("t", ["B"], "max"),
        ],
        1,
    )
    i, j = torch.tril_indices(7, 7, -1)
    dots = torch.bmm(vectors, vectors.transpose(1, 2))[:, i, j]
    return c.dense("out", torch.cat([bottom, dots], 1), 1)


def deep_fm(c):
    e = c.embedding_bag("v", ["A", "B", "C"])
    fm = 0.5 * (e.sum(1) ** 2 - (e**2).sum(1)).sum(1, keepdim=True)
    wide = c.embedding_bag("w", ["A"])[:, 0] + c.embedding_bag("w", ["B"])[:, 0]
    deep = c.dense("out", torch.relu(c.dense("deep", e.flatten(1), 6)), 1)
    return fm + wide + deep


def dcn(c):
    e = c.embedding_bag("t", ["B", "C"], "sum").flatten(1)
    x = c.cross("cross", torch.cat([c.features, e], 1), 3)
    return c.dense("out", x, 3)


def bags(case):
    case.feature("A", [0, 1, 2, 3, 4, 5], [3, 0, 3, 7, 3])
    case.feature(
        "B",
        [0, 3, 3, 5, 6, 9],
        [3, 5, 3, 1, 2, 9, 9, 9, 0],
        rand(9).abs() + 0.5,
    )
    case.feature("C", [0, 0, 2, 6, 6, 7], [8, 8, 4, 5, 6, 7, 1])
    return case


def sparse_cases():
    """Made behind all others, whose numbers then stay as they were."""
    c = Case(
        "dlrm",
        'layer { name: "bottom" dense { units: 4 } } '
        'layer { name: "act" tanh {} } '
        'layer { name: "e" embedding_bag { table: "t" } } '
        'layer { name: "mean" embedding_bag { table: "t" feature: "C" '
        'feature: "A" pooling: MEAN } } '
        'layer { name: "max" embedding_bag { table: "t" feature: "B" '
        "pooling: MAX } } "
        'layer { name: "dots" input: "act" input: "e" input: "mean" '
        'input: "max" dot_interaction {} } '
        'layer { name: "j" input: "act" input: "dots" concat {} } '
        'layer { name: "out" dense { units: 1 } } '
        "loss { sigmoid_cross_entropy {} }",
        [3],
        5,
        torch.tensor([0.0, 1, 1, 0, 1]),
    )
    c.table("t", 4)
    yield bags(c), dlrm
    c = Case(
        "deep_fm",
        'layer { name: "e" embedding_bag { table: "v" } } '
        'layer { name: "fm" factorization_machine {} } '
        'layer { name: "wa" embedding_bag { table: "w" feature: "A" } } '
        'layer { name: "fa" flatten {} } '
        'layer { name: "wb" embedding_bag { table: "w" feature: "B" } } '
        'layer { name: "fb" flatten {} } '
        'layer { name: "fe" input: "e" flatten {} } '
        'layer { name: "deep" dense { units: 6 } } '
        'layer { name: "r" relu {} } '
        'layer { name: "out" dense { units: 1 } } '
        'layer { name: "y" input: "fm" input: "fa" input: "fb" '
        'input: "out" add {} } '
        "loss { sigmoid_cross_entropy {} }",
        [0],
        5,
        torch.tensor([1.0, 0, 1, 0, 0]),
    )
    c.table("v", 3)
    c.table("w", 1)
    yield bags(c), deep_fm
    c = Case(
        "dcn",
        'layer { name: "e" embedding_bag { table: "t" '
        'feature: "B" feature: "C" } } layer { name: "f" flatten {} } '
        'layer { name: "j" input: "features" input: "f" concat {} } '
        'layer { name: "cross" cross { layers: 3 } } '
        'layer { name: "out" dense { units: 3 } } '
        "loss { softmax_cross_entropy {} }",
        [2],
        5,
        torch.tensor([0.0, 2, 1, 1, 2]),
    )
    c.table("t", 2)
    yield bags(c), dcn


CASES = [
    (
        Case(
            "mlp",
            'layer { name: "h" dense { units: 8 } } '
            'layer { name: "r" relu {} } layer { name: "n" layer_norm {} } '
            'layer { name: "t" tanh {} } '
            'layer { name: "out" dense { units: 4 no_bias: true } } '
            "loss { softmax_cross_entropy {} }",
            [12],
            6,
            torch.tensor([0.0, 3, 1, 2, 2, 0]),
        ),
        mlp,
    ),
    (
        Case(
            "convnet",
            'layer { name: "c1" conv2d { filters: 4 kernel_size: 3 '
            'padding: 1 } } layer { name: "b1" batch_norm {} } '
            'layer { name: "r1" relu {} } '
            'layer { name: "p1" max_pool { size: 2 } } '
            'layer { name: "c2" conv2d { filters: 5 kernel_size: 3 stride: 2 '
            'padding: 1 no_bias: true } } layer { name: "r2" relu {} } '
            'layer { name: "p2" average_pool { size: 2 stride: 1 '
            "padding: 1 } } "
            'layer { name: "ln" layer_norm {} } layer { name: "f" flatten {} } '
            'layer { name: "out" dense { units: 3 } } '
            "loss { softmax_cross_entropy {} }",
            [2, 8, 6],
            5,
            torch.tensor([0.0, 2, 1, 1, 2]),
        ),
        convnet,
    ),
    (
        Case(
            "wide_and_deep",
            'layer { name: "deep" dense { units: 5 } } '
            'layer { name: "s" sigmoid {} } '
            'layer { name: "j" input: "s" input: "features" concat {} } '
            'layer { name: "out" dense { units: 1 } } '
            "loss { sigmoid_cross_entropy {} }",
            [7],
            5,
            torch.tensor([0.0, 1, 1, 0, 1]),
        ),
        wide_and_deep,
    ),
    (
        Case(
            "residual",
            'layer { name: "a" dense { units: 6 } } '
            'layer { name: "norm" batch_norm {} } layer { name: "t" tanh {} } '
            'layer { name: "b" dense { units: 6 } } '
            'layer { name: "sum" input: "norm" input: "b" add {} } '
            'layer { name: "s" sigmoid {} } '
            'layer { name: "out" dense { units: 2 } } '
            "loss { mean_squared_error {} }",
            [4],
            7,
            rand(7, 2),
        ),
        residual,
    ),
    (
        Case(
            "pooled",
            'layer { name: "c" conv2d { filters: 3 kernel_size: 2 } } '
            'layer { name: "p" max_pool { size: 3 stride: 2 padding: 1 } } '
            'layer { name: "t" tanh {} } layer { name: "f" flatten {} } '
            'layer { name: "out" dense { units: 2 } } '
            "loss { softmax_cross_entropy {} }",
            [1, 6, 7],
            3,
            torch.tensor([1.0, 0, 1]),
        ),
        pooled,
    ),
]


def values(tensor):
    return " ".join(f"{v:.9g}" for v in tensor.detach().flatten().tolist())


def loss_of(case, y):
    if "softmax" in case.model:
        return F.cross_entropy(y, case.labels.long())
    if "sigmoid_cross" in case.model:
        return F.binary_cross_entropy_with_logits(y[:, 0], case.labels)
    return F.mse_loss(y, case.labels)


def table_lines(case):
    lines = [f"table {k} {v.shape[1]}" for k, v in case.tables.items()]
    for name, (offsets, ids, weights) in case.bags.items():
        lines += [f"bags {name} {values(offsets)}", f"ids {name} {values(ids)}"]
        if weights is not None:
            lines.append(f"weights {name} {values(weights)}")
    for name, rows in case.tables.items():
        for i in range(len(rows)):
            lines += [
                f"row {name} {i} {values(rows[i])}",
                f"rowgrad {name} {i} {values(rows.grad[i])}",
            ]
    return lines


def main():
    lines = ["version torch " + torch.__version__ + " float64"]
    for case, forward in itertools.chain(CASES, sparse_cases()):
        loss = loss_of(case, forward(case))
        loss.backward()
        case.training = False
        outputs = forward(case)
        lines += [
            "case " + case.name,
            "model " + case.model,
            "shape " + " ".join(map(str, case.shape)),
            f"rows {case.rows}",
        ]
        lines += [f"param {k} {values(v)}" for k, v in case.params.items()]
        lines += [
            "features " + values(case.features),
            "labels " + values(case.labels),
            "loss " + values(loss),
        ]
        for name, param in case.params.items():
            grad = case.stats.get(name, param.grad)
            lines.append(f"grad {name} {values(grad)}")
        lines += table_lines(case)
        lines += ["outputs " + values(outputs), "end"]
    path = os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "goldens.txt"
    )
    with open(path, "w") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
