"""Weir: parameter servers for training across machines.

`weir.torch` distributes a PyTorch script; `weir.connect` is below it, for
programs that bring their own model as arrays.

    client = weir.connect()
    client.declare({"w": np.zeros(10)}, optimizer=weir.SGD(lr=0.1))
    for step in range(client.pushes, 100):
        gradient = compute(client.values["w"])
        client.push_pull({"w": gradient})
"""

from weir._checkpoints import Checkpoint, checkpoints
from weir._client import Client, connect
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
from weir.optimizers import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    AdamW,
    Optimizer,
    RMSprop,
    Settings,
)
from weir.tables import FTRL, RowwiseAdagrad, SparseAdam, Table

__version__ = "0.1.0"  # as the file VERSION has it: a test compares them

__all__ = [
    "FTRL",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Checkpoint",
    "Client",
    "Closed",
    "DataLoss",
    "Forked",
    "InvalidArgument",
    "JobEnded",
    "NonFinite",
    "Optimizer",
    "RMSprop",
    "Replaced",
    "RowwiseAdagrad",
    "ServerLost",
    "Settings",
    "SparseAdam",
    "Table",
    "Unavailable",
    "WeirError",
    "WrongLayout",
    "__version__",
    "checkpoints",
    "connect",
]
