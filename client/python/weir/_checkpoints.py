"""Checkpoints of a job, by its files alone."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator

import numpy as np

from weir import _core


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

        Raises: `weir.WeirError`, which names the file that is damaged or gone:
          older checkpoints are taken away as newer ones come.
        """
        return _core.read_checkpoint(self.path)


def checkpoints(
    directory: str, *, follow: bool = False, every: float = 1.0
) -> Iterator[Checkpoint]:
    """The checkpoints of a run, by step.

    Args:
      directory: of the run (`--workdir`), or its `checkpoints`.
      follow: go on as new ones are committed, until the run has ended. What is
        still to come may be much later: nothing is there before the first.
      every: seconds between looks.
    """
    inner = os.path.join(directory, "checkpoints")
    run = directory
    if os.path.basename(os.path.normpath(directory)) == "checkpoints":
        inner, run = directory, os.path.dirname(os.path.normpath(directory))
    last = -1
    while True:
        # Looked for first: what was committed before it is seen below.
        ended = not follow or any(
            os.path.exists(os.path.join(run, name))
            for name in ("DONE", "ENDED")
        )
        for step, path in _core.list_checkpoints(inner):
            if step > last:
                last = step
                yield Checkpoint(step, path)
        if ended:
            return
        time.sleep(every)
