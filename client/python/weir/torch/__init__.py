"""Weir for PyTorch: a training script on parameter servers.

    import weir.torch as weir

    weir.init()
    model = Net().to(weir.device())
    optimizer = weir.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=1e-3), model=model)
    sampler = weir.DistributedSampler(data, batch_size=32)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    for epoch in range(weir.start_epoch(), epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
    weir.save("model.pt", model, optimizer)

See docs/python.md.
"""

from weir.errors import (
    Closed,
    DataLoss,
    Forked,
    InvalidArgument,
    JobEnded,
    NonFinite,
    Replaced,
    ServerLost,
    Unavailable,
    WeirError,
    WrongLayout,
)
from weir.optimizers import SGD, Adagrad
from weir.tables import FTRL, RowwiseAdagrad, SparseAdam
from weir.torch._context import device, init, rank, size
from weir.torch._embedding import Embedding, EmbeddingBag, prefetch
from weir.torch._files import load, save
from weir.torch._optimizer import DistributedOptimizer
from weir.torch._sampler import DistributedSampler, start_epoch

__all__ = [
    "FTRL",
    "SGD",
    "Adagrad",
    "Closed",
    "DataLoss",
    "DistributedOptimizer",
    "DistributedSampler",
    "Embedding",
    "EmbeddingBag",
    "Forked",
    "InvalidArgument",
    "JobEnded",
    "NonFinite",
    "Replaced",
    "RowwiseAdagrad",
    "ServerLost",
    "SparseAdam",
    "Unavailable",
    "WeirError",
    "WrongLayout",
    "device",
    "init",
    "load",
    "prefetch",
    "rank",
    "save",
    "size",
    "start_epoch",
]
