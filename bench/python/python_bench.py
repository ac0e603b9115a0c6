#!/usr/bin/python3
"""Measures what the Python SDK costs, as `./weir bench python` runs it.

steps: an MLP of 10 M parameters with SGD, one thread per process. `alone` is
  torch.optim in one process; `weir` the same step with one worker and one ps;
  `rpc` PyTorch's RPC parameter server (its batch-updating tutorial: push the
  gradients, get the model). With two workers `weir2` (sync) and `ddp2` (gloo).
  The processes of one kind run by themselves, kinds by turns, medians over the
  rounds.
arrays: push from and pull into NumPy at 64 MiB, in GB/s; beside it the same by
  the C++ client (bench/python/sdk_arrays), by turns.

Run:  ./weir bench python [--rounds N] [--json FILE]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
from torch import nn

from free_ports import free_port

# The tasks of both sides are insecure, unless the environment chooses.
if not os.environ.get("WEIR_SECRET"):
    os.environ["WEIR_INSECURE"] = "1"

BATCH = 8
MIB = 1 << 20


def make_model():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(1024, 2048),
        nn.ReLU(),
        nn.Linear(2048, 2048),
        nn.ReLU(),
        nn.Linear(2048, 1792),
        nn.ReLU(),
        nn.Linear(1792, 10),
    )


def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def timed_steps(step, count):
    """Returns the median seconds of a step; a quarter before does not count."""
    times = []
    for number in range(count + count // 4):
        begin = time.perf_counter()
        step()
        if number >= count // 4:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def compute(model, x, y):
    model.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(model(x), y).backward()


def batch(rank):
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(BATCH, 1024, generator=generator)
    return x, torch.randint(0, 10, (BATCH,), generator=generator)


def run_alone(arguments):
    model = make_model()
    optimizer = make_optimizer(model)
    data = batch(0)

    def step():
        compute(model, *data)
        optimizer.step()

    return timed_steps(step, arguments.steps)


def run_weir(arguments):
    import weir.torch

    weir.torch.init()
    model = make_model()
    optimizer = weir.torch.DistributedOptimizer(
        make_optimizer(model),
        model=model,
        mode="sync" if arguments.size > 1 else "async",
        overlap=arguments.overlap,
    )
    data = batch(arguments.rank)

    def step():
        compute(model, *data)
        optimizer.step()

    return timed_steps(step, arguments.steps)


def run_ddp(arguments):
    torch.distributed.init_process_group(
        "gloo", rank=arguments.rank, world_size=arguments.size
    )
    model = make_model()
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = make_optimizer(model)
    data = batch(arguments.rank)

    def step():
        compute(wrapped, *data)
        optimizer.step()

    return timed_steps(step, arguments.steps)


class RpcServer:
    """The model and its optimizer on the server of `rpc`."""

    model = None
    optimizer = None

    @staticmethod
    def start():
        RpcServer.model = make_model()
        RpcServer.optimizer = make_optimizer(RpcServer.model)

    @staticmethod
    def update(gradients):
        for parameter, gradient in zip(RpcServer.model.parameters(), gradients):
            parameter.grad = gradient
        RpcServer.optimizer.step()
        return [p.detach() for p in RpcServer.model.parameters()]


def run_rpc(arguments):
    from torch.distributed import rpc

    rpc.init_rpc(
        ("worker", "ps")[arguments.rank], rank=arguments.rank, world_size=2
    )
    seconds = None
    if arguments.rank == 0:
        rpc.rpc_sync("ps", RpcServer.start)
        model = make_model()
        data = batch(0)

        def step():
            compute(model, *data)
            gradients = [p.grad for p in model.parameters()]
            values = rpc.rpc_sync("ps", RpcServer.update, args=(gradients,))
            with torch.no_grad():
                for parameter, value in zip(model.parameters(), values):
                    parameter.copy_(value)

        seconds = timed_steps(step, arguments.steps)
    rpc.shutdown()
    return seconds


def run_arrays(arguments):
    """Returns the median GB/s of each operation."""
    import weir

    client = weir.connect()
    elements = 64 * MIB // 4
    client.declare(
        {"w": np.zeros(elements, np.float32)}, optimizer=weir.SGD(lr=1.0)
    )
    client.gradients["w"][:] = 1e-6
    rates = {}
    for name, operation in (
        ("pull", client.pull),
        ("push", client.push),
        ("push_pull", client.push_pull),
    ):
        rates[name] = 4 * elements / timed_steps(operation, arguments.steps)
    return {name: rate / 1e9 for name, rate in rates.items()}


RUNS = {
    "alone": run_alone,
    "weir": run_weir,
    "ddp": run_ddp,
    "rpc": run_rpc,
    "arrays": run_arrays,
}


def wait_for(workers, kind):
    """Waits until all have ended well, or one of them has not.

    The others may wait without end for one that has failed.
    """
    codes = [None]
    while None in codes:
        time.sleep(0.05)
        codes = [worker.poll() for worker in workers]
        for code in codes:
            if code not in (None, 0):
                raise SystemExit(f"{kind} ended with {code}")


def measure(kind, size, steps, transport="auto", overlap=False):
    """Runs `size` processes of a kind; returns what the first one says."""
    servers = []
    environment = dict(
        os.environ,
        OMP_NUM_THREADS="1",
        WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port()),
        GLOO_SOCKET_IFNAME="lo",
        TP_SOCKET_IFNAME="lo",
        WEIR_TRANSPORT=transport,
        WEIR_LOG_LEVEL="error",
    )
    if kind in ("weir", "arrays", "sdk"):
        address = f"127.0.0.1:{free_port()}"
        environment["WEIR_PS"] = address
        ps = os.path.join(os.environ["WEIR_BIN_DIR"], "server/ps/weir_ps")
        servers.append(
            subprocess.Popen(
                [ps, "--cluster", f"ps={address}", "--task_index", "0"],
                stderr=subprocess.DEVNULL,
            )
        )
    if kind == "sdk":  # a C++ program, which reads another variable
        environment.update(
            WEIR_CLUSTER=f"ps={address};worker=127.0.0.1:9",
            WEIR_TASK_TYPE="worker",
            WEIR_TASK_INDEX="0",
        )
    workers = []
    try:
        for rank in range(size):
            if kind == "sdk":
                command = [
                    os.path.join(
                        os.environ["WEIR_BIN_DIR"], "bench/python/sdk_arrays"
                    ),
                    str(steps),
                ]
            else:
                command = [
                    sys.executable,
                    os.path.abspath(__file__),
                    "--kind",
                    kind,
                    "--rank",
                    str(rank),
                    "--size",
                    str(size),
                    "--steps",
                    str(steps),
                ] + (["--overlap"] if overlap else [])
            workers.append(
                subprocess.Popen(
                    command,
                    env=dict(environment, RANK=str(rank)),
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        wait_for(workers, kind)
        return json.loads(workers[0].stdout.read())
    finally:
        for process in servers + workers:
            process.kill()
            process.wait()


def transport_rates(rounds):
    """Returns the C++ client's GB/s for 64 MiB through shared memory."""
    bench = os.path.join(
        os.environ["WEIR_BIN_DIR"], "bench/transport/transport_bench"
    )
    out = f"/tmp/weir-transport-{os.getpid()}.json"
    try:
        subprocess.run(
            [
                bench,
                "--transport",
                "shm",
                "--rounds",
                str(rounds),
                "--json",
                out,
                "--min_bytes",
                str(64 * MIB),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with open(out, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
    finally:
        if os.path.exists(out):
            os.unlink(out)
    return {
        row["operation"].removeprefix("shm "): row["gb_per_s_median"]
        for row in rows
        if row["bytes"] == 64 * MIB
    }


def report(found, rates):
    """Prints the tables; returns the figures."""
    median = {kind: statistics.median(v) for kind, v in found.items()}
    parameters = sum(p.numel() for p in make_model().parameters())
    print(
        f"a step of {parameters / 1e6:.1f} M parameters, ms, median of "
        f"{len(next(iter(found.values())))} rounds (least, most)"
    )
    for kind, values in found.items():
        print(
            f"  {kind:12s} {1e3 * median[kind]:8.1f}   "
            f"({1e3 * min(values):.1f}, {1e3 * max(values):.1f})"
        )
    added = median["weir"] - median["alone"]
    print("transport_bench, 64 MiB through shared memory, GB/s:", rates)
    wire = 4 * parameters / 1e9 / rates["push_pull"]
    print(
        f"weir adds {1e3 * added:.1f} ms to a step alone, "
        f"{added / wire:.2f} of what transport_bench takes for the bytes"
    )
    print(
        f"weir / rpc {median['weir'] / median['rpc']:.2f}, "
        f"weir2 / ddp2 {median['weir2'] / median['ddp2']:.2f}"
    )
    return {
        "seconds": found,
        "added": added,
        "transport": rates,
        "parameters": parameters,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", help="write the results here, too")
    parser.add_argument("--kind", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument(
        "--overlap", action="store_true", help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    if arguments.kind:
        torch.set_num_threads(1)
        print(json.dumps(RUNS[arguments.kind](arguments)))
        return
    kinds = {
        "alone": ("alone", 1),
        "weir": ("weir", 1),
        "weir overlap": ("weir", 1, "auto", True),
        "weir grpc": ("weir", 1, "grpc"),
        "rpc": ("rpc", 2),
        "weir2": ("weir", 2),
        "ddp2": ("ddp", 2),
    }
    found = {name: [] for name in kinds}
    arrays, sdk = [], []
    for _ in range(arguments.rounds):
        for name, (kind, size, *more) in kinds.items():
            found[name].append(measure(kind, size, arguments.steps, *more))
        arrays.append(measure("arrays", 1, arguments.steps))
        sdk.append(measure("sdk", 1, arguments.steps))
    rates = transport_rates(arguments.rounds)
    result = report(found, rates)
    print("NumPy, 64 MiB, GB/s, and its share of the C++ client's rate")
    for operation in arrays[0]:
        rate = statistics.median(row[operation] for row in arrays)
        of_sdk = statistics.median(row[operation] for row in sdk)
        print(f"  {operation:10s} {rate:6.2f}   {rate / of_sdk:.2f}")
    result["arrays"], result["sdk"] = arrays, sdk
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
