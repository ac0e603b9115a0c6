#!/usr/bin/python3
"""Rows of an nn.Embedding over PyTorch RPC, as `rows_bench` runs it.

A server holds the rows and Adagrad's sums; the client looks rows up, or sends
gradients, which the server applies. DIRECTORY has the lists of ids of each
operation, NAME.ids and NAME.counts, int64. Prints one JSON object: rows/s.

Run:  /usr/bin/python3 bench/torch_rows.py --rows 10000000 --lists DIRECTORY
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


class Server:
    """Of the process that serves."""

    rows = None
    sums = None

    @staticmethod
    def start(count):
        Server.rows = torch.nn.Embedding(count, DIM).weight.detach()
        Server.sums = torch.zeros(count, DIM)

    @staticmethod
    def lookup(ids):
        return Server.rows.index_select(0, ids)

    @staticmethod
    def update(ids, gradients):
        """Adagrad; no id comes twice."""
        sums = Server.sums.index_select(0, ids)
        sums.addcmul_(gradients, gradients)
        Server.sums.index_copy_(0, ids, sums)
        step = gradients / sums.sqrt_().add_(EPSILON)
        Server.rows.index_add_(0, ids, step, alpha=-RATE)


def look_up_all(batches, _gradients):
    for ids in batches:
        rpc.rpc_sync("server", Server.lookup, args=(ids,))


def update_all(batches, gradients):
    for ids, gradient in zip(batches, gradients):
        rpc.rpc_sync("server", Server.update, args=(ids, gradient))


def loop(batches, gradients):
    """The lookup of the next batch while the update of this one is under way."""
    rpc.rpc_sync("server", Server.lookup, args=(batches[0],))
    for i, ids in enumerate(batches):
        update = rpc.rpc_async("server", Server.update,
                               args=(ids, gradients[i]))
        if i + 1 < len(batches):
            rpc.rpc_sync("server", Server.lookup, args=(batches[i + 1],))
        update.wait()


def read_lists(directory, name):
    ids = np.fromfile(os.path.join(directory, name + ".ids"), np.int64)
    counts = np.fromfile(os.path.join(directory, name + ".counts"), np.int64)
    # Each in memory of its own: RPC sends the whole storage of a tensor.
    return [part.clone() for part in
            torch.from_numpy(ids).split(counts.tolist())]


def run(rank, port, arguments, queue):
    torch.set_num_threads(arguments.threads)
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://127.0.0.1:{port}", num_worker_threads=4)
    if arguments.transport == "tcp":
        options = rpc.TensorPipeRpcBackendOptions(
            init_method=f"tcp://127.0.0.1:{port}", num_worker_threads=4,
            _transports=["uv"], _channels=["basic"])
    rpc.init_rpc("server" if rank == 0 else "client", rank=rank, world_size=2,
                 rpc_backend_options=options)
    if rank == 1:
        rpc.rpc_sync("server", Server.start, args=(arguments.rows,))
        found = {}
        for name, operation in (("lookup", look_up_all),
                                ("update", update_all), ("loop", loop)):
            batches = read_lists(arguments.lists, name)
            gradients = [torch.rand(len(ids), DIM) * 2 - 1 for ids in batches]
            operation(batches[:2], gradients)
            begin = time.perf_counter()
            operation(batches, gradients)
            seconds = time.perf_counter() - begin
            found[name] = sum(map(len, batches)) / seconds
        queue.put(found)
    rpc.shutdown()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--lists", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--transport", choices=["default", "tcp"],
                        default="default")
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
