"""The low-level client: named float32 arrays on parameter servers."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from weir import _core, _environment, _metrics
from weir.errors import Closed, InvalidArgument, JobEnded
from weir.optimizers import SGD, Optimizer, Settings
from weir.tables import Table, check_ids

_clients: weakref.WeakSet[Client] = weakref.WeakSet()

# common/base/exit_code.h, kExitRetry.
_EXIT_RETRY = 138

# Ids and their gradients, by table.
Rows = Mapping[str, tuple[Any, Any]]


def _shape_text(shape: Sequence[int]) -> str:
    return "[" + ", ".join(str(n) for n in shape) + "]"


def _array(name: str, value: Any) -> np.ndarray:
    """`value` as an array that shares its memory where it can."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):  # a PyTorch tensor
        value = value.detach()
    try:
        if hasattr(value, "__array__") or not hasattr(value, "__dlpack__"):
            return np.asarray(value)
        return np.from_dlpack(value)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise InvalidArgument(
            f"'{name}' cannot be read as an array in host memory: {error}"
        ) from None


def _check(
    name: str, given: np.ndarray, to: np.ndarray, value: np.ndarray
) -> None:
    """Raises unless `value` can be copied to `to`; one of them was `given`."""
    if value.shape != to.shape:
        tensor = to if given is value else value
        raise InvalidArgument(
            f"'{name}' is {_shape_text(tensor.shape)}, "
            f"the array given is {_shape_text(given.shape)}"
        )
    if not np.can_cast(value.dtype, to.dtype, casting="same_kind"):
        raise InvalidArgument(
            f"'{name}': {value.dtype} cannot be taken for {to.dtype}"
        )


def _copy(to: np.ndarray, value: np.ndarray) -> None:
    """Copies `value`, unless it is the same memory."""
    if (
        value.ctypes.data != to.ctypes.data
        or value.strides != to.strides
        or value.dtype != to.dtype
    ):
        np.copyto(to, value, casting="same_kind")


def _optimizers(given: Any) -> list[Optimizer]:
    """One for each parameter group, from one or from several."""
    optimizers = list(given) if isinstance(given, (list, tuple)) else [given]
    for one in optimizers:
        if not isinstance(one, Optimizer):
            raise InvalidArgument(
                f"optimizer is {one!r}; give a weir.SGD, Adagrad, RMSprop, "
                "Adadelta, Adam or AdamW, or a list of them"
            )
    return optimizers


def _described(
    tensors: Mapping[str, Any],
    groups: dict[str, int],
    buffers: set[str],
    export_dtypes: Mapping[str, str] | None,
    aliases: Mapping[str, Sequence[str]] | None,
) -> list[dict[str, Any]]:
    """The tensors as the core takes them, in order."""
    described = []
    for name, value in tensors.items():
        array = _array(name, value)
        described.append(
            {
                "name": name,
                "shape": list(array.shape),
                "values": np.ascontiguousarray(array, np.float32),
                "group": groups.pop(name, 0),
                "buffer": name in buffers,
                "export_dtype": (export_dtypes or {}).get(name, "F32"),
                "aliases": list((aliases or {}).get(name, ())),
            }
        )
    # What is left names no tensor: a mistyped name must not pass in silence.
    unknown = sorted(set(groups) | buffers - set(tensors))
    if unknown:
        raise InvalidArgument(f"no tensor is named '{unknown[0]}'")
    return described


class Client:
    """One worker's line to the parameter servers of a job; see `connect`.

    Used by one thread at a time, in the process that made it. As a context
    manager it ends with `finish` after a clean body, and with `close`.

    Raises: `weir.Closed` when it is asked after `close` or before `declare`,
    `weir.ServerLost` when a server is gone, `weir.Replaced` when a newer
    process took this worker's place, `weir.Forked` in a forked child.
    """

    def __init__(self, options: dict[str, Any]):
        self._options = options
        self._core: _core.CoreClient | None = None
        self._names: dict[str, int] = {}
        self._memory: dict[str, np.ndarray] = {}  # what _values are views of
        self._values: dict[str, np.ndarray] = {}
        self._gradients: dict[str, np.ndarray] = {}
        self._tables: dict[str, Table] = {}
        self._looked_up: dict[str, np.ndarray] | None = None
        _core.set_up_process(f"worker/{options['rank']}")
        _watch_exit()
        self._core = _core.CoreClient(options)
        _clients.add(self)

    # ---------------------------------------------------------------- tensors

    def declare(
        self,
        tensors: Mapping[str, Any],
        tables: Sequence[Table] = (),
        *,
        optimizer: Optimizer | Sequence[Optimizer] | None = None,
        mode: str = "async",
        staleness: int = 0,
        groups: Mapping[str, int] | None = None,
        buffers: Iterable[str] = (),
        export_dtypes: Mapping[str, str] | None = None,
        aliases: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Names the tensors and tables of the job, the same on every worker.

        The servers start from worker 0's values, unless they hold the job
        already: then theirs stay. Fetches them.

        Args:
          tensors: initial values by name, arrays of any shape without a zero;
            kept as float32. With tables there may be none.
          tables: embedding tables; see `weir.Table`.
          optimizer: what the servers do with the tensors' gradients; several,
            of one class, for parameter groups.
          mode: "async", "sync" (a step is the mean of one push of every
            worker) or "ssp" (async, no worker more than `staleness` pushes
            ahead of the slowest).
          groups: index into `optimizer` by tensor name; absent names are in 0.
          buffers: names whose pushes bring values, not gradients.
          export_dtypes, aliases: how checkpoints export a tensor: its
            safetensors dtype ("F16"), and more names for it.

        Raises: `weir.InvalidArgument`; `weir.WrongLayout` when the job has
          other tensors, another mode or optimizer; `weir.Unavailable` when
          worker 0 does not come.
        """
        core = self._open()
        if self._names or self._tables:
            raise Closed("the tensors are declared already")
        if optimizer is None and not tensors:
            optimizer = SGD(lr=1.0)  # there is no tensor that it could move
        for table in tables:
            if not isinstance(table, Table):
                raise InvalidArgument(f"{table!r} is not a weir.Table")
        optimizers = _optimizers(optimizer)
        described = _described(
            tensors, dict(groups or {}), set(buffers), export_dtypes, aliases
        )
        # The core takes mode and optimizers when it connects, so it connects
        # once more.
        core.close()
        self._core = core = _core.CoreClient(
            dict(
                self._options,
                groups=[o._as_options() for o in optimizers],
                mode=mode,
                staleness=staleness,
            )
        )
        core.declare(described, [t._as_options() for t in tables])
        self._tables = {table.name: table for table in tables}
        for tensor, entry in enumerate(described):
            name = entry["name"]
            self._names[name] = tensor
            self._memory[name] = core.values(tensor)
            self._values[name] = self._memory[name].view()
            self._values[name].flags.writeable = False
            self._gradients[name] = core.gradient(tensor)
        core.pull()

    @property
    def rank(self) -> int:
        """This worker among all, from 0."""
        return self._options["rank"]

    @property
    def size(self) -> int:
        """Workers of the job."""
        return self._options["worker_count"]

    @property
    def values(self) -> Mapping[str, np.ndarray]:
        """The values last pulled, by name: float32 and read-only.

        Views of the memory that servers write: `pull` and `push_pull` change
        them in place, and so `copy()` what is to stay.
        """
        return self._values

    @property
    def gradients(self) -> Mapping[str, np.ndarray]:
        """Where gradients travel from, by name: float32, to be written to.

        A gradient that is written here and pushed is not copied again.
        """
        return self._gradients

    # ------------------------------------------------------------ pull, push

    def pull(
        self, out: Mapping[str, Any] | None = None
    ) -> Mapping[str, np.ndarray]:
        """Fetches the newest values (sync: those of the next step).

        Args:
          out: arrays by name, written in place: NumPy's, or anything that
            shares its memory with NumPy.
        Returns: `values`.
        """
        core = self._declared()
        targets = self._targets(out)
        core.pull()
        return self._give(targets)

    def push(
        self,
        gradients: Mapping[str, Any] | None = None,
        *,
        sequence: int | None = None,
        weight: float = 1.0,
        settings: Mapping[int, Settings] | None = None,
        rows: Rows | None = None,
        table_lr: Mapping[str, float] | None = None,
    ) -> bool:
        """Applies gradients on the servers, exactly once.

        Args:
          gradients: arrays by name, of the tensors' shapes; tensors that are
            not named are left alone. None: all, as they are in `gradients`.
          sequence: number of this push, from 0. One below `pushes` was applied
            before, maybe by an earlier process, and is passed over; one above
            is refused.
          weight: sync: of this gradient in its step's mean. 0: counts as a
            push and changes nothing.
          settings: by group, for this push alone.
          rows: by table: (ids, gradients [*ids.shape, dim]). Gradients of one
            id are summed, in float64. Other rows are left alone.
          table_lr: learning rates by table, for this push alone.
        Returns: whether it was pushed, not passed over.
        Raises: `weir.NonFinite` for NaN or Inf: nothing of the tensor's block,
          or no row of the server, was changed.
        """
        return self._push(
            gradients, sequence, weight, settings, rows, table_lr, pull=False
        )

    def push_pull(
        self,
        gradients: Mapping[str, Any] | None = None,
        *,
        sequence: int | None = None,
        weight: float = 1.0,
        settings: Mapping[int, Settings] | None = None,
        rows: Rows | None = None,
        table_lr: Mapping[str, float] | None = None,
        out: Mapping[str, Any] | None = None,
    ) -> Mapping[str, np.ndarray]:
        """`push`, then `pull`, in one round trip.

        Sync: waits until every worker has pushed.
        """
        core = self._declared()
        targets = self._targets(out)
        if not self._push(
            gradients, sequence, weight, settings, rows, table_lr, pull=True
        ):
            core.pull()
        return self._give(targets)

    # ---------------------------------------------------------------- tables

    def lookup(self, table: str, ids: Any, *, train: bool = True) -> np.ndarray:
        """Fetches rows: float32 [*ids.shape, dim].

        They are the newest; in sync those of the step that comes next, and ssp
        waits as `pull` does.

        Args:
          ids: integers >= 0 in an array of any shape, in any order, any number
            of times.
          train: ids without a row get one, where the table admits them, and
            rows count as touched. Without it nothing changes on the servers.
        """
        core = self._for_lookup()
        array, rows, wanted = self._wanted(table, ids)
        core.lookup([wanted], train)
        return rows.reshape(array.shape + rows.shape[1:])

    def start_lookup(
        self, ids: Mapping[str, Any], *, train: bool = True
    ) -> None:
        """Starts to fetch rows of several tables, by name; see `lookup`.

        They come while the program computes or pushes; one `start_lookup` at a
        time, and `lookup` not in between. In sync rows are those of a step:
        start it after the push of the step before.
        """
        core = self._for_lookup()
        found, wanted = {}, []
        for table, of_table in ids.items():
            array, rows, one = self._wanted(table, of_table)
            found[table] = rows.reshape(array.shape + rows.shape[1:])
            wanted.append(one)
        core.start_lookup(wanted, train)
        self._looked_up = found

    def wait_lookup(self) -> dict[str, np.ndarray]:
        """Waits for what `start_lookup` asked for; returns rows by table."""
        core = self._declared()
        if self._looked_up is None:
            raise Closed("no lookup is under way: call start_lookup first")
        core.wait_lookup()
        found, self._looked_up = self._looked_up, None
        return found

    def _for_lookup(self) -> _core.CoreClient:
        core = self._declared()
        if self._looked_up is not None:
            raise Closed("a lookup is under way: call wait_lookup first")
        return core

    def _wanted(
        self, table: str, ids: Any
    ) -> tuple[np.ndarray, np.ndarray, tuple[str, np.ndarray, np.ndarray]]:
        dim = self._table(table).dim
        array = check_ids(table, _array(f"ids of {table}", ids))
        rows = np.empty((array.size, dim), np.float32)
        return array, rows, (table, array.reshape(-1), rows)

    def _table(self, name: str) -> Table:
        try:
            return self._tables[name]
        except KeyError:
            raise InvalidArgument(f"no table is named '{name}'") from None

    def _row_gradients(
        self, table: str, given: Any
    ) -> tuple[str, np.ndarray, np.ndarray]:
        dim = self._table(table).dim
        try:
            ids, gradients = given
        except (TypeError, ValueError):
            raise InvalidArgument(
                f"rows of table '{table}': give (ids, gradients)"
            ) from None
        ids = check_ids(table, _array(f"ids of {table}", ids))
        gradients = _array(f"gradients of {table}", gradients)
        if gradients.shape != ids.shape + (dim,):
            raise InvalidArgument(
                f"gradients of table '{table}' are "
                f"{_shape_text(gradients.shape)}; "
                f"{_shape_text(ids.shape + (dim,))} is wanted"
            )
        if not np.can_cast(gradients.dtype, np.float32, casting="same_kind"):
            raise InvalidArgument(
                f"gradients of table '{table}' are {gradients.dtype}, which "
                "does not become float32"
            )
        return (
            table,
            ids.reshape(-1),
            np.ascontiguousarray(gradients, np.float32),
        )

    # ------------------------------------------------------------ progress

    def report(
        self, loss: Any = None, *, examples: int | None = None, **metrics: Any
    ) -> None:
        """Tells how the push before went, for the job's curves.

        The chief writes means of what all workers reported into train.jsonl
        and for TensorBoard, about once a second; without a chief nothing
        happens. It sends nothing by itself, so every push may have a report.

        Args:
          loss: what is trained on; a number, or an array or tensor of one.
          examples: how many this push was computed on. The mean weighs each
            report by them; one without them weighs 1.
          metrics: more numbers, at most 32 with the loss. Names have letters,
            digits, "_", ".", "/" and "-": `**{"val/accuracy": 0.9}`.

        Raises: `weir.InvalidArgument` for what is no number, a name that
          cannot be one, and more than 128 names in all.
        """
        self._declared().report(*_metrics.report(loss, examples, metrics))

    @property
    def pushes(self) -> int:
        """This worker's pushes that the servers have, of all its processes."""
        return self._declared().pushes

    # ------------------------------------------------------------ life

    def status(self) -> list[dict[str, Any]]:
        """What each server says about itself, in order.

        Keys: address, ready, job, version_min and version_max (updates applied,
        over its blocks), blocks_accepted, blocks_duplicate, blocks_left_out,
        staleness_max, bytes_resident, tables ({name: {"rows", "bytes"}}).
        """
        return self._open().servers()

    def finish(self) -> None:
        """This worker pushes no more; in sync and ssp the others go on.

        In a job with a chief this waits until they have finished, too, and the
        last checkpoint is written: what this worker has pushed is safe from
        there on.

        Raises:
            JobEnded: the job ended before that, for example because a ps was
                lost. Start the program again: it goes on from the last
                checkpoint.
        """
        if self._core is not None and (self._names or self._tables):
            self._core.finish()
            self.close()

    def close(self) -> None:
        """Ends the connections. The arrays stay readable.

        Unless `finish` came first, the others expect this worker to be started
        again.
        """
        if self._core is not None:
            self._core.close()
            self._core = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            self.finish()
        self.close()

    # ------------------------------------------------------------ internals

    def _open(self) -> _core.CoreClient:
        if self._core is None:
            raise Closed("the client is closed: connect again")
        return self._core

    def _declared(self) -> _core.CoreClient:
        core = self._open()
        if not self._names and not self._tables:
            raise Closed("the client has no tensors: call declare first")
        return core

    def _tensor(self, name: str) -> int:
        try:
            return self._names[name]
        except KeyError:
            raise InvalidArgument(f"no tensor is named '{name}'") from None

    def _push(
        self,
        gradients: Mapping[str, Any] | None,
        sequence: int | None,
        weight: float,
        settings: Mapping[int, Settings] | None,
        rows: Rows | None,
        table_lr: Mapping[str, float] | None,
        pull: bool,
    ) -> bool:
        core = self._declared()
        if sequence is not None and sequence != core.pushes:
            if sequence > core.pushes:
                raise InvalidArgument(
                    f"sequence number {sequence} was pushed before "
                    f"{core.pushes}"
                )
            return False
        if gradients is None:
            given = [(tensor, None) for tensor in self._names.values()]
        else:
            given = [
                (self._tensor(name), (name, _array(name, value)))
                for name, value in gradients.items()
            ]
            # All are checked before the first one leaves.
            for _, (name, array) in given:
                _check(name, array, self._gradients[name], array)
        of_rows = [
            self._row_gradients(table, one)
            for table, one in (rows or {}).items()
        ]
        core.begin_push(
            weight,
            [s._as_options(g) for g, s in (settings or {}).items()],
            pull,
            of_rows,
            [
                (self._table(table).name, float(lr))
                for table, lr in (table_lr or {}).items()
            ],
        )
        try:
            for tensor, entry in given:
                if entry is not None:
                    name, array = entry
                    _copy(self._gradients[name], array)
                core.ready(tensor)
        finally:
            core.end_push()
        core.wait()
        return True

    def _targets(self, out: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
        """`out` as arrays, each of which can take its tensor's values."""
        targets = {}
        for name, target in (out or {}).items():
            self._tensor(name)
            array = targets[name] = _array(name, target)
            _check(name, array, array, self._values[name])
            if not array.flags.writeable:
                raise InvalidArgument(f"'{name}': the array is read-only")
        return targets

    def _give(self, targets: dict[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        for name, array in targets.items():
            _copy(array, self._values[name])
        return self._values


def connect(
    ps: Sequence[str] | None = None,
    *,
    chief: str | None = None,
    rank: int | None = None,
    worker_count: int | None = None,
    job: str = "sdk",
    transport: str | None = None,
    checksum: str = "auto",
    start_wait: float = 60.0,
    lost_after: float = 10.0,
    push_encoding: str = "f32",
    pull_encoding: str = "f32",
    top_k_fraction: float = 0.01,
    block_elements: int = 262144,
    seed: int = 0,
) -> Client:
    """Reaches the parameter servers of this process's cluster.

    Args:
      ps: "host:port" of every server, in order; as WEIR_PS says it. None:
        TF_CONFIG; WEIR_CLUSTER, WEIR_TASK_TYPE and WEIR_TASK_INDEX; or WEIR_PS.
      chief: "host:port" of weir_chief, who writes checkpoints; "": the job has
        none. None: that of the cluster, or beside `ps` and WEIR_PS that of
        WEIR_CHIEF.
      rank, worker_count: this worker among all. None: as the cluster says, or
        beside `ps` and WEIR_PS torchrun's RANK and WORLD_SIZE, else 0 and 1.
      job: programs that give the same name share their tensors.
      transport: "auto" (shared memory to servers on this host), "grpc", "shm".
      checksum: CRC32C of what travels, which finds damage that TCP does not:
        "auto" (to servers on other hosts), "on", "off".
      start_wait: seconds, up to 86400, to wait for the servers, for worker 0,
        and for a chief that is away.
      lost_after: up to 86400 s without an answer make a server count as lost.
      push_encoding, pull_encoding: what travels in place of float32: "f32",
        "bf16", "f16", "int8"; pushes also "top_k", that fraction of the
        gradients. What a push loses is added to the next one.
      block_elements: unit of transfer; a multiple of 16.
      seed: of the rows' initial values; the same on every worker.

    Raises: `weir.InvalidArgument`, also where the environment says that this
      task is not a worker; `weir.Unavailable`, which names the server that did
      not answer.
    """
    cluster = _environment.cluster(
        ps,
        chief=chief,
        rank=rank,
        worker_count=worker_count,
        transport=transport,
    )
    if cluster is None:
        raise InvalidArgument(
            "the environment names no cluster: set TF_CONFIG, or WEIR_PS "
            "to host:port of the servers, or start this with `weir run`"
        )
    return Client(
        dict(
            cluster,
            job=job,
            checksum=checksum,
            start_wait=start_wait,
            lost_after=lost_after,
            push_encoding=push_encoding,
            pull_encoding=pull_encoding,
            top_k_fraction=top_k_fraction,
            block_elements=block_elements,
            seed=seed,
        )
    )


_exit: Callable[[Any], NoReturn] | None = None  # sys.exit as it was
_exits_badly = False  # whether the last call of sys.exit has such a status


def _watch_exit() -> None:
    """From the first call on sys.exit is `_note_exit`.

    What is registered with atexit cannot find out the status: Python forgets a
    SystemExit before it calls that.
    """
    global _exit
    if _exit is None:
        _exit, sys.exit = sys.exit, _note_exit


def _note_exit(status: Any = None, /) -> NoReturn:
    global _exits_badly
    if threading.current_thread() is threading.main_thread():
        _exits_badly = status not in (None, 0)
    _exit(status)


@atexit.register
def _close_all() -> None:
    """Closes what is still open when the interpreter ends.

    After a clean end, as opposed to an exception or a status of sys.exit, that
    is a `finish`. If the job has ended before the last checkpoint, the
    program's work may be lost, and it ends with the exit code for another
    start.
    """
    clean = getattr(sys, "last_value", None) is None and not _exits_badly
    start_again = False
    for client in list(_clients):
        try:
            if clean:
                client.finish()
            client.close()
        except Exception as error:  # there is nobody left to handle it
            print(f"weir: {error}", file=sys.stderr)
            start_again = start_again or isinstance(error, JobEnded)
    if start_again:
        # At this point nothing else can change the exit code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_EXIT_RETRY)
