"""Which ads are clicked: a small DLRM on generated clicks.

    weir run --ps 2 --workers 2 -- python ctr.py

The rows of the embedding tables are on the servers: a worker holds those of
its batch alone. Each row is made as its id is first seen, so ids need no
vocabulary. The last line is the area under the ROC curve on clicks that no
worker has trained on, and that of the probabilities that made the clicks.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import weir.torch as weir

FEATURES = ("user", "ad", "site")
NUMBERS = 4


def clicks(count, seed):
    """Numbers, one id of each feature, clicks, and their probabilities."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(count, NUMBERS, generator=generator)
    # A few ids are in most samples. They are hashes: any 63 bits.
    places = torch.rand(count, len(FEATURES), generator=generator) ** 3
    ids = (places * 500).long() * 0x5851F42D4C957F2D & (2**63 - 1)
    effects = torch.sin(ids.double() % 10007 * 12.9).float()
    odds = numbers @ torch.tensor([1.0, -0.5, 0.25, 0.0]) - 0.5
    odds += effects.sum(1) + effects[:, 0] * effects[:, 1]
    chance = torch.sigmoid(odds)
    happened = torch.rand(count, generator=generator) < chance
    return numbers, ids, happened.float(), chance


def auc(score, happened):
    """That a click has a higher score than a miss."""
    order = score.argsort()
    rank = torch.empty(len(score), dtype=torch.float64)
    rank[order] = torch.arange(1, len(score) + 1, dtype=torch.float64)
    hits = happened.sum().double()
    misses = len(happened) - hits
    above = rank[happened > 0].sum() - hits * (hits + 1) / 2
    return (above / (hits * misses)).item()


class Dlrm(nn.Module):
    """Naumov et al. 2019: the products of all pairs of vectors."""

    def __init__(self, dim):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(NUMBERS, dim), nn.ReLU())
        self.tables = nn.ModuleList(
            weir.Embedding(
                None,
                dim,
                name=feature,
                optimizer=weir.Adagrad(lr=0.1, initial_accumulator=0.1),
                init="normal",
                init_scale=0.1,
            )
            for feature in FEATURES
        )
        count = len(FEATURES) + 1
        self.top = nn.Sequential(
            nn.Linear(count * dim + count * (count - 1) // 2, 32),
            nn.ReLU(),
            nn.Linear(32, 1),
        )

    def forward(self, numbers, ids):
        vectors = [self.bottom(numbers)]
        vectors += [table(ids[:, n]) for n, table in enumerate(self.tables)]
        stacked = torch.stack(vectors, 1)
        products = stacked @ stacked.transpose(1, 2)
        rows, columns = torch.tril_indices(len(vectors), len(vectors), -1)
        pairs = products[:, rows, columns]
        return self.top(torch.cat([stacked.flatten(1), pairs], 1))[:, 0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=80000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--mode", default="async")
    args = parser.parse_args()

    weir.init()
    torch.manual_seed(1)
    data = TensorDataset(*clicks(args.samples, seed=1)[:3])
    numbers, ids, happened, chance = clicks(10000, seed=2)
    model = Dlrm(args.dim).to(weir.device())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    optimizer = weir.DistributedOptimizer(
        optimizer, model=model, mode=args.mode
    )
    loader = DataLoader(data, 128, sampler=weir.DistributedSampler(data, 128))
    loss_of = nn.BCEWithLogitsLoss()

    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            x, i, y = (part.to(weir.device()) for part in batch)
            optimizer.zero_grad()
            loss = loss_of(model(x, i), y)
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")

    if weir.rank() == 0:
        model.eval()  # no row is made for an id that nobody trained on
        with torch.no_grad():
            score = model(numbers.to(weir.device()), ids.to(weir.device()))
        print(
            f"test AUC {auc(score.cpu(), happened):.4f}, "
            f"at best {auc(chance, happened):.4f}"
        )


if __name__ == "__main__":
    main()
