#!/usr/bin/python3
"""MNIST in PyTorch, as `weir bench train --peers` runs it.

The models of examples/mnist_mlp.textproto and mnist_convnet.textproto, Adam,
batch 64 per process, one thread per process. How: `rpc` is the parameter-server
pattern of PyTorch's RPC tutorial (a server that holds the parameters and the
optimizer, two workers that fetch, compute and push), `ddp` two processes over
gloo, `alone` one process. Prints one JSON object.

Run:  /usr/bin/python3 bench/training/torch_train.py --model mlp --how ddp \\
          --data_dir DIR
"""

import argparse
import gzip
import json
import os
import socket
import struct
import threading
import time

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from torch import nn

BATCH = 64
server = None


def read_idx(path):
    with gzip.open(path) as file:
        _, _, kind, rank = struct.unpack("4B", file.read(4))
        assert kind == 8, path
        shape = struct.unpack(f">{rank}I", file.read(4 * rank))
        return torch.frombuffer(
            bytearray(file.read()), dtype=torch.uint8
        ).reshape(shape)


def read_part(data_dir, part):
    images = read_idx(f"{data_dir}/{part}-images-idx3-ubyte.gz").float()
    labels = read_idx(f"{data_dir}/{part}-labels-idx1-ubyte.gz").long()
    return ((images / 255 - 0.1307) / 0.3081).unsqueeze(1), labels


def make_model(name):
    torch.manual_seed(1)
    if name == "mlp":
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, 512),
            nn.ReLU(),
            nn.Linear(512, 256),
            nn.ReLU(),
            nn.Linear(256, 10),
        )
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 128),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(128, 10),
    )


def batches(data, arguments, rank, world):
    """Each process's share: every world-th batch of a common permutation.

    As many for each: DDP waits for all in every step.
    """
    images, labels = data
    step = world * BATCH
    for epoch in range(arguments.epochs):
        order = torch.randperm(
            len(images), generator=torch.Generator().manual_seed(epoch)
        )
        for begin in range(0, len(order) - step + 1, step):
            index = order[begin + rank * BATCH : begin + (rank + 1) * BATCH]
            yield images[index], labels[index]


class Server:
    """Parameters and optimizer; one update at a time."""

    def __init__(self, model_name):
        self.model = make_model(model_name)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.lock = threading.Lock()


def start_server(model_name):
    global server
    server = Server(model_name)


def fetch():
    with server.lock:
        return [p.detach() for p in server.model.parameters()]


def push(gradients):
    with server.lock:
        for parameter, gradient in zip(server.model.parameters(), gradients):
            parameter.grad = gradient
        server.optimizer.step()


def train_rpc_worker(data, arguments, rank):
    model = make_model(arguments.model)
    loss = nn.CrossEntropyLoss()
    for images, labels in batches(data, arguments, rank, 2):
        for mine, theirs in zip(model.parameters(), rpc.rpc_sync("ps", fetch)):
            mine.data.copy_(theirs)
        model.zero_grad(set_to_none=True)
        loss(model(images), labels).backward()
        rpc.rpc_sync("ps", push, args=([p.grad for p in model.parameters()],))
    for mine, theirs in zip(model.parameters(), rpc.rpc_sync("ps", fetch)):
        mine.data.copy_(theirs)
    return model


def train_here(data, arguments, rank, world):
    model = make_model(arguments.model)
    wrapped = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss = nn.CrossEntropyLoss()
    for images, labels in batches(data, arguments, rank, world):
        optimizer.zero_grad(set_to_none=True)
        loss(wrapped(images), labels).backward()
        optimizer.step()
    return model


def run(rank, port, arguments, results):
    torch.set_num_threads(1)
    how = arguments.how
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if how == "rpc":
        names = ["worker0", "worker1", "ps"]
        rpc.init_rpc(
            names[rank],
            rank=rank,
            world_size=3,
            rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
                num_worker_threads=4, init_method=f"tcp://127.0.0.1:{port}"
            ),
        )
    elif how == "ddp":
        dist.init_process_group("gloo", rank=rank, world_size=2)
    if rank < 2:
        data = read_part(arguments.data_dir, "train")
        if how == "rpc":
            if rank == 0:
                rpc.rpc_sync("ps", start_server, args=(arguments.model,))
            results["barrier"].wait()
        begin = time.perf_counter()
        model = (
            train_rpc_worker(data, arguments, rank)
            if how == "rpc"
            else train_here(data, arguments, rank, 2 if how == "ddp" else 1)
        )
        seconds = time.perf_counter() - begin
        model.eval()
        if rank == 0:
            images, labels = read_part(arguments.data_dir, "t10k")
            with torch.no_grad():
                right = sum(
                    (
                        model(images[i : i + 500]).argmax(1)
                        == labels[i : i + 500]
                    )
                    .sum()
                    .item()
                    for i in range(0, len(images), 500)
                )
            results["queue"].put(
                {
                    "examples_per_second": arguments.epochs
                    * len(data[0])
                    / seconds,
                    "accuracy": right / len(images),
                }
            )
    if how == "rpc":
        rpc.shutdown()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["mlp", "convnet"], default="mlp")
    parser.add_argument(
        "--how", choices=["rpc", "ddp", "alone"], default="alone"
    )
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--epochs", type=int, default=1)
    arguments = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    results = {"queue": context.SimpleQueue(), "barrier": context.Barrier(2)}
    count = {"rpc": 3, "ddp": 2, "alone": 1}[arguments.how]
    mp.spawn(run, args=(port, arguments, results), nprocs=count)
    print(json.dumps(results["queue"].get()))


if __name__ == "__main__":
    main()
