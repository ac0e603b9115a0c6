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
    Closed as Closed,
    DataLoss as DataLoss,
    Forked as Forked,
    InvalidArgument as InvalidArgument,
    JobEnded as JobEnded,
    NonFinite as NonFinite,
    Refused as Refused,
    Replaced as Replaced,
    ServerLost as ServerLost,
    Unavailable as Unavailable,
    WeirError as WeirError,
    WrongLayout as WrongLayout,
)
from weir.optimizers import SGD as SGD, Adagrad as Adagrad
from weir.tables import (
    FTRL as FTRL,
    RowwiseAdagrad as RowwiseAdagrad,
    SparseAdam as SparseAdam,
)
from weir.torch._context import (
    device as device,
    init as init,
    rank as rank,
    size as size,
)
from weir.torch._embedding import (
    Embedding as Embedding,
    EmbeddingBag as EmbeddingBag,
    prefetch as prefetch,
)
from weir.torch._files import load as load, save as save
from weir.torch._optimizer import DistributedOptimizer as DistributedOptimizer
from weir.torch._sampler import (
    DistributedSampler as DistributedSampler,
    start_epoch as start_epoch,
)
