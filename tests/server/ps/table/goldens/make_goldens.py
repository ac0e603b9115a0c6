"""Writes the goldens of tests/server/ps/table/row_optimizer_test.cc.

Run from this folder: /usr/bin/python3 make_goldens.py
Made with torch 1.13.0a0 (Debian's 1.13.1), numpy 1.24.2, CPython 3.11.

An nn.EmbeddingBag(sparse=True) is trained for STEPS steps; bags repeat ids.

inputs.f32     the table before [ROWS, DIM], then the gradients of steps.txt in
               its order, DIM floats each, little-endian float32.
steps.txt      one line a step: the ids of its coalesced gradient.
reference.f32  the table after STEPS steps, [cases, ROWS, DIM].
cases.txt      "name learning_rate" per line.
"""

import numpy as np
import torch

ROWS = 24
DIM = 18
STEPS = 50
BAGS = 3
CASES = [
    # name, learning rate, torch class, torch arguments
    ("sgd", 0.1, "SGD", {}),
    ("adagrad", 0.01, "Adagrad", {}),
    (
        "adagrad_all",
        0.05,
        "Adagrad",
        dict(initial_accumulator_value=0.2, eps=1e-6),
    ),
    ("adam", 0.001, "SparseAdam", {}),
    ("adam_all", 0.01, "SparseAdam", dict(betas=(0.8, 0.99), eps=1e-6)),
    # One optimizer for each row, so that each counts its own steps.
    ("adam_per_row", 0.01, "SparseAdam", {}),
]


def make_steps():
    """Returns the table before and (ids, gradient) of each step."""
    rng = np.random.RandomState(20261122)
    bag = torch.nn.EmbeddingBag(ROWS, DIM, mode="sum", sparse=True)
    start = (0.05 * rng.randn(ROWS, DIM)).astype(np.float32)
    scale = 10.0 ** rng.uniform(-6, 2, size=DIM)
    steps = []
    for _ in range(STEPS):
        ids = np.minimum(rng.zipf(1.3, size=(BAGS, 4)) - 1, ROWS - 1)
        upstream = (scale * rng.randn(BAGS, DIM)).astype(np.float32)
        bag.weight.grad = None
        bag(torch.from_numpy(ids)).backward(torch.from_numpy(upstream))
        gradient = bag.weight.grad.coalesce()
        steps.append(
            (
                gradient.indices()[0].numpy().copy(),
                gradient.values().numpy().copy(),
            )
        )
    return start, steps


def sparse(ids, values, rows):
    return torch.sparse_coo_tensor(
        torch.from_numpy(ids)[None], torch.from_numpy(values), (rows, DIM)
    )


def run(kind, arguments, lr, start, steps):
    table = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = getattr(torch.optim, kind)([table], lr=lr, **arguments)
    for ids, values in steps:
        table.grad = sparse(ids, values, ROWS)
        optimizer.step()
    return table.detach().numpy()


def run_rows(kind, arguments, lr, start, steps):
    out = []
    for row in range(ROWS):
        own = [
            (np.zeros(1, np.int64), values[ids == row])
            for ids, values in steps
            if row in ids
        ]
        table = torch.nn.Parameter(
            torch.from_numpy(start[row : row + 1].copy())
        )
        optimizer = getattr(torch.optim, kind)([table], lr=lr, **arguments)
        for ids, values in own:
            table.grad = sparse(ids, values, 1)
            optimizer.step()
        out.append(table.detach().numpy())
    return np.concatenate(out)


def main():
    start, steps = make_steps()
    with open("inputs.f32", "wb") as out:
        out.write(start.astype("<f4").tobytes())
        for _, values in steps:
            out.write(values.astype("<f4").tobytes())
    with open("steps.txt", "w") as out:
        for ids, _ in steps:
            out.write(" ".join(str(i) for i in ids) + "\n")
    with (
        open("reference.f32", "wb") as reference,
        open("cases.txt", "w") as cases,
    ):
        for name, lr, kind, arguments in CASES:
            each = run_rows if name.endswith("_per_row") else run
            reference.write(
                each(kind, arguments, lr, start, steps).astype("<f4").tobytes()
            )
            cases.write(f"{name} {lr}\n")


if __name__ == "__main__":
    main()
