"""The optimizer that runs on the servers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from weir import _client, _metrics, optimizers
from weir.errors import InvalidArgument, NonFinite
from weir.torch import _context, _embedding, _loading, _model, _rules
from weir.torch._job_rows import JobRows
from weir.torch._staging import Staging

_HAVE_LEFT = (
    "overlap=True: the gradients of this step have left for the servers and "
    "cannot be taken back: call step() first. Leave a batch out before its "
    "backward, and set backward_passes to the number of backwards of a step"
)


class DistributedOptimizer(torch.optim.Optimizer):
    """A PyTorch optimizer whose arithmetic is done by parameter servers.

    `step` pushes the gradients of this worker, and returns when the model has
    the newest values. It is a `torch.optim.Optimizer` with the very
    `param_groups` of the one it is made from, so schedulers, `GradScaler`
    and gradient accumulation work as they did; the learning rate, weight decay
    and momentum (betas[0]) that a group has at `step` are those the servers
    use. Clipping clips each worker's own gradient, not their mean.

    The servers start from rank 0's parameters and every worker gets them, so
    there is nothing to broadcast; a worker that was started again gets what
    the servers have. Until the first step load_state_dict of the model raises:
    the step would undo it. Parameters are updated in place; those that are
    float32 in host memory are moved to where values arrive, as this object is
    made.

    Without a cluster it is the given optimizer.

    Args:
      optimizer: torch.optim's SGD, Adagrad, RMSprop, Adadelta, Adam or AdamW,
        which the servers run with PyTorch's arithmetic; or any other with
        `local`.
      model: whose parameters and persistent buffers the servers keep, as
        float32, under their names in `state_dict`. Parameters that the
        optimizer has not are kept, and never changed. Buffers are rank 0's.
        Its `EmbeddingBag` and `Embedding` of `weir.torch` are the job's tables.
      mode: "async": each gradient is applied when it comes. "sync": a step is
        the mean of one gradient of every worker, the same bits in every run.
        "ssp": async, and no worker more than `staleness` steps ahead of the
        slowest.
      staleness: of "ssp".
      local: run `optimizer` in the worker and push what it changed; the
        servers add it up (sync: its mean). For optimizers that the servers
        have not. Their state stays in the worker.
      overlap: push each gradient as backward has it, `backward_passes` times
        accumulated. What changes gradients between backward and step (clipping,
        GradScaler) or leaves the batch out comes too late then, and what reads
        parameters on a GPU there may see values of this step or the next.

    Raises: `weir.InvalidArgument`; what `weir.connect` and
      `weir.Client.declare` raise.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        model: torch.nn.Module,
        mode: str = "async",
        staleness: int = 0,
        local: bool = False,
        overlap: bool = False,
        backward_passes: int = 1,
    ):
        self._context = _context.context()
        self._inner = optimizer
        self._client: _client.Client | None = None
        self._frozen_groups = False
        # The groups stay the same dicts, so that a scheduler of the inner
        # optimizer works on them.
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self.param_groups = optimizer.param_groups
        self.state = optimizer.state
        self._frozen_groups = True
        self._local = local
        self._overlap = overlap and self._context.connection is not None
        self.first_push = 0
        self._rows = JobRows(
            _embedding.modules_of(model),
            local=self._context.connection is None,
            seed=self._context.seed,
        )
        if self._context.connection is None:
            if self._rows.tables:
                self._context.rows = self._rows
                self._step_supports_amp_scaling = True
            return
        if backward_passes < 1 or (overlap and local):
            raise InvalidArgument(
                "overlap wants an optimizer on the servers"
                if local
                else f"backward_passes is {backward_passes}"
            )
        if self._context.optimizer is not None:
            raise InvalidArgument(
                "this process has a DistributedOptimizer; a job has one"
            )
        # GradScaler calls step even when it skips one, which others wait for.
        self._step_supports_amp_scaling = True
        self._rules = (
            [optimizers.SGD(lr=1.0) for _ in self.param_groups]
            if local
            else _rules.rules(optimizer)
        )
        self._maximize = [
            bool(group.get("maximize", False)) and not local
            for group in self.param_groups
        ]
        self._backward_passes = backward_passes
        self._entries = _model.entries(model, self.param_groups)
        self._connect(mode, staleness)
        self._share(model)
        self._guard = _loading.Guard(model)
        self._context.optimizer = self
        self._context.first_push = self.first_push
        self._context.rows = self._rows

    def _share(self, model: torch.nn.Module) -> None:
        """Gives the job's tensors to the model, and watches its gradients."""
        self._trained = [e for e in self._entries if e.trained]
        self._buffers = [e for e in self._entries if e.buffer]
        self._ready: set[str] = set()
        self._pushing = False
        self._passes: dict[str, int] = {}
        self._hooks: list[Any] = []
        self._hooks_lock = threading.Lock()
        if self._overlap:
            for entry in self._trained:
                self._hook(entry)
        if not self._local and not self._overlap:
            # With `local` the values given are wanted beside what they became;
            # with `overlap` they may come while backward reads the parameters.
            self._staging.move_in(
                [self._numbers[e.name] for e in self._trained], model
            )
        self._take(self._entries)

    def _connect(self, mode: str, staleness: int) -> None:
        connection = dict(self._context.connection or {})
        client = _client.connect(**connection)
        try:
            client.declare(
                {
                    e.name: e.tensor.detach().to("cpu", torch.float32).numpy()
                    for e in self._entries
                },
                self._rows.tables,
                optimizer=self._rules,
                mode=mode,
                staleness=staleness,
                groups={e.name: e.group for e in self._entries},
                buffers=[e.name for e in self._entries if e.buffer],
                export_dtypes={e.name: e.export_dtype for e in self._entries},
                aliases={e.name: e.aliases for e in self._entries},
            )
        except BaseException:
            client.close()
            raise
        self._client = self._rows.client = client
        self.first_push = client.pushes
        self._numbers = {e.name: n for n, e in enumerate(self._entries)}
        self._staging = Staging(
            [e.tensor for e in self._entries],
            [client._memory[e.name] for e in self._entries],
            [client.gradients[e.name] for e in self._entries],
        )

    # ------------------------------------------------------------------ steps

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Pushes the gradients and fetches the newest parameters.

        Parameters whose gradient is None are left alone. In sync it waits for
        the other workers.

        Returns: what `closure` did.
        Raises: `weir.NonFinite` for NaN or Inf: the servers left the gradient
          out. `weir.ServerLost` and others of `weir.Client`.
        """
        if self._client is None and not self._rows.tables:
            return self._inner.step(closure)
        result = None
        runs_here = self._local or self._client is None
        if closure is not None and not runs_here:
            with torch.enable_grad():
                result = closure()
        found_inf = getattr(self, "found_inf", None)
        if found_inf is not None and self._overlap:
            raise InvalidArgument(
                "overlap=True pushed the gradients before GradScaler saw them"
            )
        skip = found_inf is not None and bool(found_inf.item())
        if found_inf is not None and self._rows:
            if getattr(self, "grad_scale", None) is None:
                raise InvalidArgument(
                    "GradScaler.unscale_ does not see the gradients of rows: "
                    "leave it to GradScaler.step in a model with tables"
                )
            skip = skip or not self._rows.is_finite()
        if runs_here and not skip:
            self._unscale_gradients()
            result = self._inner.step(closure)
        if self._client is None:
            self._step_rows(skip)
            return result
        self._push(skip)
        try:
            self._client._declared().wait()
        except NonFinite:
            self._take_step()
            raise
        self._take_step()
        return result

    def _unscale_gradients(self) -> None:
        """For the optimizer of this process: GradScaler leaves them scaled."""
        factor = self._unscale()
        for group in self.param_groups if factor != 1.0 else ():
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)

    def _step_rows(self, skip: bool) -> None:
        """Alone, with tables."""
        if skip:
            self._rows.clear()
        else:
            self._rows.step_here(self._unscale())

    def pull(self) -> None:
        """Fetches the newest parameters into the model."""
        if self._client is not None:
            self._client.pull()
            self._take(self._trained + self._buffers)

    @property
    def pushes(self) -> int:
        """Steps of this rank, those of its earlier processes, too."""
        return 0 if self._client is None else self._client.pushes

    def report(
        self, loss: Any = None, *, examples: int | None = None, **metrics: Any
    ) -> None:
        """Tells how the step before went; see `weir.Client.report`.

        Reading a tensor of a GPU waits for what it is computed from. Without a
        cluster nothing happens.
        """
        if self._client is not None:
            self._client.report(loss, examples=examples, **metrics)
        else:
            _metrics.report(loss, examples, metrics)

    def finish(self) -> None:
        """This worker makes no more steps; the others go on.

        A script that ends without an error does it by itself.
        """
        if self._client is not None:
            self._guard.end()
            self._client.finish()

    def _begin(self, weight: float = 1.0) -> None:
        settings = []
        if not self._local:
            for g, now in enumerate(_rules.rules(self._inner)):
                changed = _rules.settings(now, self._rules[g])
                settings.append(changed._as_options(g))
        self._client._declared().begin_push(
            weight, settings, True, [], self._rows.rates()
        )
        self._pushing = True

    def _push(self, skip: bool) -> None:
        core = self._client._declared()
        if not self._pushing:
            self._begin(weight=0.0 if skip else 1.0)
        try:
            if not skip:
                if self._rows:
                    core.push_rows(self._rows.lists(self._unscale()))
                # As backward made them: the last layers first.
                self._send([e for e in reversed(self._trained) if self._has(e)])
                if self._context.rank == 0:
                    # A mask of -inf, which servers would refuse with the
                    # gradients beside it: they have it from the declaration.
                    self._send(
                        [
                            e
                            for e in self._buffers
                            if e.finite or _model.is_finite(e.tensor)
                        ]
                    )
            self._staging.send_rest(core.ready, core.has_values)
        finally:
            self._pushing = False
            self._staging.give_up()
            self._rows.clear()
            self._ready.clear()
            self._passes.clear()
            core.end_push()

    def _has(self, entry: _model.Entry) -> bool:
        if entry.name in self._ready:
            return False
        return self._local or entry.tensor.grad is not None

    def _unscale(self) -> float:
        """What takes GradScaler's scale off a gradient."""
        scale = getattr(self, "grad_scale", None)
        return 1.0 if scale is None else 1.0 / float(scale.item())

    @torch.no_grad()
    def _send(self, entries: list[_model.Entry]) -> None:
        core = self._client._declared()
        factor = self._unscale()

        def value(entry: _model.Entry) -> torch.Tensor:
            tensor = entry.tensor
            if entry.buffer:
                return tensor
            if self._local:
                # What the servers gave, less what it has become.
                given = self._staging.values[self._numbers[entry.name]]
                given = given.to(tensor.dtype).to(tensor.device)
                return given.float() - tensor.float()
            gradient = tensor.grad
            if gradient.is_sparse:
                gradient = gradient.to_dense()
            sign = -1.0 if self._maximize[entry.group] else 1.0
            return (
                gradient if sign * factor == 1.0 else gradient * (sign * factor)
            )

        self._staging.send(
            ((self._numbers[e.name], value(e)) for e in entries),
            core.ready,
            # With `overlap` they may change before `step` is called.
            None if self._overlap else core.ready_from,
            take_back={
                self._numbers[e.name]
                for e in entries
                if not e.buffer and e.tensor.requires_grad
            },
        )

    def _take_step(self) -> None:
        """What a step brings; rank 0's own buffers are newer."""
        self._guard.end()
        self._staging.give_back()
        wanted = [e for e in self._trained if e.tensor.requires_grad]
        wanted += self._buffers if self._context.rank != 0 else []
        with torch.no_grad():
            self._staging.take_rest([self._numbers[e.name] for e in wanted])

    @torch.no_grad()
    def _take(self, entries: list[_model.Entry]) -> None:
        self._staging.take([self._numbers[e.name] for e in entries])

    # -------------------------------------------------------------- gradients

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """torch's, and forgets the gradients of rows that no step pushed.

        Raises: `weir.InvalidArgument` with `overlap` between the backward whose
          gradients have left and `step`: servers do not give them back.
        """
        if self._client is not None:
            if self._pushing:
                raise InvalidArgument(_HAVE_LEFT)
            self._passes.clear()
        super().zero_grad(*args, **kwargs)
        self._rows.clear()

    # ---------------------------------------------------------------- overlap

    def _hook(self, entry: _model.Entry) -> None:
        parameter = entry.tensor
        if not parameter.requires_grad:
            return
        if hasattr(parameter, "register_post_accumulate_grad_hook"):
            self._hooks.append(
                parameter.register_post_accumulate_grad_hook(
                    lambda _: self._on_gradient(entry)
                )
            )
            return
        # The node that adds to .grad; it lives as long as we hold it.
        with torch.enable_grad():
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_: self._on_gradient(entry))
        self._hooks.append(node)

    def _on_gradient(self, entry: _model.Entry) -> None:
        # Autograd has a thread for each device, and what begins a push lets
        # other threads run.
        with self._hooks_lock:
            if entry.name in self._ready:
                raise InvalidArgument(_HAVE_LEFT)
            passes = self._passes.get(entry.name, 0) + 1
            self._passes[entry.name] = passes
            if passes < self._backward_passes:
                return
            if not self._pushing:
                self._begin()
            self._ready.add(entry.name)
            self._send([entry])

    # ------------------------------------------------------------------ state

    def add_param_group(self, param_group: dict) -> None:
        """Only before the servers know the groups: at construction."""
        if self._frozen_groups and self._client is not None:
            raise InvalidArgument(
                "the servers know the parameter groups already; give the "
                "optimizer all of them before DistributedOptimizer"
            )
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """torch's, and `weir`: {"pushes"}. Moments are on the servers."""
        return dict(super().state_dict(), weir={"pushes": self.pushes})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes hyper-parameters; with `local` or alone all of it.

        What the servers hold stays.
        """
        state = {k: v for k, v in state_dict.items() if k != "weir"}
        if self._client is None or self._local:
            self._inner.load_state_dict(state)
            self.param_groups = self._inner.param_groups
            self.state = self._inner.state
            return
        saved = state["param_groups"]
        if len(saved) != len(self.param_groups):
            raise InvalidArgument(
                f"the state has {len(saved)} parameter groups, the optimizer "
                f"has {len(self.param_groups)}"
            )
        for group, values in zip(self.param_groups, saved):
            group.update({k: v for k, v in values.items() if k != "params"})

    def __repr__(self) -> str:
        return f"Distributed{self._inner!r}"
