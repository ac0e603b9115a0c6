"""Logistic regression in NumPy alone, on parameter servers.

    weir run --ps 1 --workers 2 -- python numpy_logistic.py
    weir run --workers 2 -- python numpy_logistic.py --train FILE --test FILE

It generates its data, or reads LibSVM text (agaricus.txt.train and .test).
Newton's method on all of the data, in one process, tells what the servers
should have found: the script ends with 1 if they did not. Lines that are
Weir's are marked.
"""

import argparse
import sys

import numpy as np

import weir  # Weir

BATCH = 64
DECAY = 1e-3  # of the weights; it also makes the solution unique


def generate(rows, seed):
    """Labels by the sign of a noisy linear function: [rows, 20], [rows]."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 20)).astype(np.float32)
    truth = np.linspace(-1.0, 1.0, 20)
    y = x @ truth + 0.5 + random.logistic(size=rows) > 0.0
    return x, y.astype(np.float32)


def read_libsvm(path, columns=127):
    """Lines "label column:value ..."; dense, for data as small as agaricus."""
    with open(path, encoding="ascii") as file:
        rows = [line.split() for line in file]
    x = np.zeros((len(rows), columns), np.float32)
    for i, (_, *cells) in enumerate(rows):
        for cell in cells:
            column, value = cell.split(":")
            x[i, int(column)] = float(value)
    y = np.array([float(row[0]) > 0 for row in rows], np.float32)
    return x, y


def predict(x, weight, bias):
    return 1.0 / (1.0 + np.exp(-(x @ weight + bias)))


def loss(x, y, weight, bias):
    z = x @ weight + bias
    return (np.logaddexp(0.0, z) - y * z).mean() + DECAY / 2 * weight @ weight


def newton(x, y, steps=20):
    """The weights of the smallest loss, by the second derivatives."""
    x = np.hstack([x, np.ones((len(x), 1))]).astype(np.float64)
    decay = np.append(np.full(x.shape[1] - 1, DECAY), 1e-9)
    w = np.zeros(x.shape[1])
    for _ in range(steps):
        p = predict(x, w, 0.0)
        gradient = x.T @ (p - y) / len(x) + decay * w
        curvature = (x.T * (p * (1.0 - p))) @ x / len(x) + np.diag(decay)
        w -= np.linalg.solve(curvature, gradient)
    return w[:-1], w[-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train")
    parser.add_argument("--test")
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    if (args.train is None) != (args.test is None):
        parser.error("give both --train and --test, or neither")
    x, y = read_libsvm(args.train) if args.train else generate(20000, 1)
    test = read_libsvm(args.test) if args.test else generate(5000, 2)

    client = weir.connect()  # Weir
    client.declare(  # Weir
        {"weight": np.zeros(x.shape[1]), "bias": np.zeros(())},
        optimizer=weir.Adam(lr=0.02),
    )
    # Views: every push_pull changes what they show.
    weight, bias = client.values["weight"], client.values["bias"]  # Weir
    steps = args.steps // client.size  # Weir
    for step in range(client.pushes, steps):  # Weir
        # A batch of its own for every step of every worker.
        random = np.random.default_rng([step, client.rank])  # Weir
        rows = random.integers(len(x), size=BATCH)
        error = predict(x[rows], weight, bias) - y[rows]
        rate = 0.02 * (1.0 - step / steps)
        client.push_pull(  # Weir
            {
                "weight": x[rows].T @ error / BATCH + DECAY * weight,
                "bias": error.mean(),
            },
            settings={0: weir.Settings(lr=rate)},
        )

    if client.rank > 0:  # Weir
        return 0
    best = newton(x, y)
    for name, (w, b) in (("weir", (weight, bias)), ("newton", best)):
        right = ((predict(test[0], w, b) > 0.5) == test[1]).mean()
        print(f"{name}: loss {loss(x, y, w, b):.5f} test accuracy {right:.4f}")
    return 0 if loss(x, y, weight, bias) < 1.03 * loss(x, y, *best) else 1


if __name__ == "__main__":
    sys.exit(main())
