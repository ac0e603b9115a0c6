"""A network that reads handwritten digits, before and after Weir.

    python mnist_before.py --data_dir DIR
    weir run --ps 2 --workers 2 -- python mnist.py --data_dir DIR

The first trains in one process; the second is the same script on parameter
servers, and trains by itself when it is started as the first one is. `diff`
shows the lines that it takes. DIR has the four files of MNIST.
"""

import argparse
import gzip
import pathlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import weir.torch as weir


def read_idx(path):
    """An IDX file of bytes, as a tensor."""
    packed = path.with_name(path.name + ".gz")
    content = (
        gzip.decompress(packed.read_bytes())
        if packed.exists()
        else (path.read_bytes())
    )
    rank = content[3]
    shape = [
        int.from_bytes(content[4 * i + 4 : 4 * i + 8], "big")
        for i in range(rank)
    ]
    values = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return values[4 * rank + 4 :].reshape(shape)


def read_mnist(folder, part):
    images = read_idx(folder / f"{part}-images-idx3-ubyte").float() / 255.0
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte").long()
    return TensorDataset((images - 0.1307) / 0.3081, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", type=pathlib.Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--train_images", type=int, default=60000)
    args = parser.parse_args()
    train = read_mnist(args.data_dir, "train")
    train = TensorDataset(*train[: args.train_images])
    test = read_mnist(args.data_dir, "t10k")

    weir.init()
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    optimizer = weir.DistributedOptimizer(optimizer, model=model, mode="sync")
    loader = DataLoader(train, 64, sampler=weir.DistributedSampler(train, 64))

    for epoch in range(args.epochs):
        for step, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            if step % 200 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")

    x, y = test.tensors
    with torch.no_grad():
        right = model(x.to(device)).argmax(1).cpu() == y
    if weir.rank() == 0:
        print(f"test accuracy {right.float().mean().item():.4f}")


if __name__ == "__main__":
    main()
