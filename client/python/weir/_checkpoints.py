"""Checkpoints of a job, by its files alone."""

from __future__ import annotations

import dataclasses
import os
import posixpath
import time
from collections.abc import Iterator

import numpy as np

from weir import _core
from weir.errors import InvalidArgument


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A committed checkpoint.

    Attributes:
      step: steps of a sync job; else pushes applied.
      path: of its directory.
    """

    step: int
    path: str

    def tensors(self) -> dict[str, np.ndarray]:
        """float32 arrays by name, a tied tensor under each of its names.

        Every file's checksum is looked at first.

        Raises: `weir.DataLoss`, which names the file that is damaged or gone:
          older checkpoints are taken away as newer ones come.
        """
        return _core.read_checkpoint(self.path)


def checkpoints(
    directory: str | os.PathLike[str] | None = None,
    *,
    follow: bool = False,
    every: float = 1.0,
) -> Iterator[Checkpoint]:
    """The checkpoints of a run, by step.

    Args:
      directory: of the run (`--workdir`, or the URL of `--checkpoints`), or
        its `checkpoints`. What `s3://BUCKET/PREFIX` needs comes from the
        variables of the AWS tools: keys, AWS_REGION, AWS_ENDPOINT_URL. None:
        of the run that started this program, which `weir run` and `weir task`
        name in WEIR_CHECKPOINTS or WEIR_WORKDIR.
      follow: go on as new ones are committed, until the run has ended. What is
        still to come may be much later: nothing is there before the first. A
        run that is resumed has ended until its chief has started, or, if it
        was done, until it trains.
      every: seconds between looks, each of which costs a few requests where
        an object store is asked.
    """
    if directory is None:
        directory = os.environ.get("WEIR_CHECKPOINTS") or os.environ.get(
            "WEIR_WORKDIR"
        )
        if not directory:
            raise InvalidArgument(
                "neither WEIR_CHECKPOINTS nor WEIR_WORKDIR is set: name the "
                "run's directory, or give `weir run` --workdir"
            )
    run = os.fspath(directory)
    run = run.rstrip("/") or ("/" if run else ".")
    inner = posixpath.join(run, "checkpoints")
    if posixpath.basename(run) == "checkpoints":
        run, inner = posixpath.dirname(run), run
    last = -1
    while True:
        # Looked for first: what was committed before it is seen below.
        ended = not follow or _core.run_has_ended(run)
        for step, path in _core.list_checkpoints(inner):
            if step > last:
                last = step
                yield Checkpoint(step, path)
        if ended:
            return
        time.sleep(every)
