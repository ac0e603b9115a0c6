"""Weir: parameter servers for training across machines.

`weir.torch` distributes a PyTorch script; `weir.connect` is below it, for
programs that bring their own model as arrays.

    client = weir.connect()
    client.declare({"w": np.zeros(10)}, optimizer=weir.SGD(lr=0.1))
    for step in range(client.pushes, 100):
        gradient = compute(client.values["w"])
        client.push_pull({"w": gradient})
"""

from weir._checkpoints import (
    Checkpoint as Checkpoint,
    checkpoints as checkpoints,
)
from weir._client import Client as Client, connect as connect
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
from weir.optimizers import (
    SGD as SGD,
    Adadelta as Adadelta,
    Adagrad as Adagrad,
    Adam as Adam,
    AdamW as AdamW,
    Optimizer as Optimizer,
    RMSprop as RMSprop,
    Settings as Settings,
)
from weir.tables import (
    FTRL as FTRL,
    RowwiseAdagrad as RowwiseAdagrad,
    SparseAdam as SparseAdam,
    Table as Table,
)

__version__ = "0.1.0"  # as the file VERSION has it: a test compares them
