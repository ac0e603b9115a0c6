#!/usr/bin/python3
"""Embedding rows over PyTorch RPC, as `rows_bench` runs it.

A server holds the rows and Adagrad's sums; the client looks up and sends
gradients, which the server applies. Two ways:
  rows  distinct ids one way, their rows the other; Adagrad in tensor operations
  bags  an nn.EmbeddingBag: all ids of a batch one way, a bag's sum the other;
        the sums' gradients go back, the server's autograd makes a sparse
        gradient of them and torch.optim.Adagrad applies it
DIRECTORY has the lists of each operation, NAME.ids and NAME.counts, int64.
Prints one JSON object: ids/s by operation, and CPU ns an id of both processes.

Run:  /usr/bin/python3 bench/tables/torch_rows.py --rows 10000000 \\
          --lists DIRECTORY
"""

import argparse
import json
import os
import socket
import time

import numpy as np
import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

DIM = 16
RATE, EPSILON = 1e-3, 1e-10


class Rows:
    """The rows and Adagrad's sums of the process that serves."""

    rows = None
    sums = None

    @staticmethod
    def start(count):
        Rows.rows = torch.rand(count, DIM)
        Rows.sums = torch.zeros(count, DIM)

    @staticmethod
    def lookup(ids):
        return Rows.rows.index_select(0, ids)

    @staticmethod
    def update(ids, gradients):
        """Adagrad; no id comes twice.

        A copy out and a copy in take the least time: index_add_ and
        add_(sparse) take several times as long.
        """
        sums = Rows.sums.index_select(0, ids)
        sums.addcmul_(gradients, gradients)
        Rows.sums.index_copy_(0, ids, sums)
        rows = Rows.rows.index_select(0, ids)
        rows.addcdiv_(gradients, sums.sqrt_().add_(EPSILON), value=-RATE)
        Rows.rows.index_copy_(0, ids, rows)


class Bags:
    """The nn.EmbeddingBag and its optimizer of the process that serves."""

    bags = None
    optimizer = None

    @staticmethod
    def start(count):
        Bags.bags = torch.nn.EmbeddingBag(
            count, DIM, mode="sum", sparse=True, _weight=torch.rand(count, DIM)
        )
        Bags.optimizer = torch.optim.Adagrad(Bags.bags.parameters(), lr=RATE)

    @staticmethod
    def lookup(ids):
        """One id a bag."""
        with torch.no_grad():
            return Bags.bags(ids, torch.arange(len(ids)))

    @staticmethod
    def update(ids, gradients):
        Bags.optimizer.zero_grad(set_to_none=True)
        Bags.bags(ids, torch.arange(len(ids))).backward(gradients)
        Bags.optimizer.step()


def look_up_all(server, batches, _gradients):
    for ids in batches:
        rpc.rpc_sync("server", server.lookup, args=(ids,))


def update_all(server, batches, gradients):
    for ids, gradient in zip(batches, gradients):
        rpc.rpc_sync("server", server.update, args=(ids, gradient))


def loop(server, batches, gradients):
    """Looks the next batch up while the update of this one is under way."""
    rpc.rpc_sync("server", server.lookup, args=(batches[0],))
    for i, (ids, gradient) in enumerate(zip(batches, gradients)):
        update = rpc.rpc_async("server", server.update, args=(ids, gradient))
        if i + 1 < len(batches):
            rpc.rpc_sync("server", server.lookup, args=(batches[i + 1],))
        update.wait()


OPERATIONS = {"lookup": look_up_all, "update": update_all, "loop": loop}


def cpu_seconds():
    """Of the client and the server."""
    return time.process_time() + rpc.rpc_sync("server", time.process_time)


def read_lists(directory, name):
    ids = np.fromfile(os.path.join(directory, name + ".ids"), np.int64)
    counts = np.fromfile(os.path.join(directory, name + ".counts"), np.int64)
    # Each in memory of its own: RPC may send the whole storage of a view.
    return [
        part.clone() for part in torch.from_numpy(ids).split(counts.tolist())
    ]


def run(rank, port, arguments, queue):
    torch.set_num_threads(arguments.threads)
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://127.0.0.1:{port}", num_worker_threads=4
    )
    if arguments.transport == "tcp":
        options = rpc.TensorPipeRpcBackendOptions(
            init_method=f"tcp://127.0.0.1:{port}",
            num_worker_threads=4,
            _transports=["uv"],
            _channels=["basic"],
        )
    rpc.init_rpc(
        "server" if rank == 0 else "client",
        rank=rank,
        world_size=2,
        rpc_backend_options=options,
    )
    if rank == 1:
        found = {}
        for kind, server in (("rows", Rows), ("bags", Bags)):
            rpc.rpc_sync("server", server.start, args=(arguments.rows,))
            for name, operation in OPERATIONS.items():
                batches = read_lists(arguments.lists, f"{kind}_{name}")
                gradients = [
                    torch.rand(len(ids), DIM) * 2 - 1 for ids in batches
                ]
                operation(server, batches[:2], gradients)
                begin, cpu = time.perf_counter(), cpu_seconds()
                operation(server, batches, gradients)
                seconds = time.perf_counter() - begin
                cpu = cpu_seconds() - cpu
                ids = sum(map(len, batches))
                found[f"{kind}_{name}"] = ids / seconds
                found[f"{kind}_{name}_cpu"] = 1e9 * cpu / ids
        queue.put(found)
    rpc.shutdown()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--lists", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--transport", choices=["default", "tcp"], default="default"
    )
    arguments = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("TP_SOCKET_IFNAME", "lo")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    mp.spawn(run, args=(port, arguments, queue), nprocs=2)
    print(json.dumps(queue.get()))


if __name__ == "__main__":
    main()
