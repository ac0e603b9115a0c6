#!/usr/bin/python3
"""Measures pull and push-with-apply over PyTorch RPC.

`transport_bench --peers` runs it.

A server holds one float32 tensor; the client fetches it, or sends a gradient
that is applied by SGD. Prints one JSON object: the median of the seconds that
each call takes.

Run:  /usr/bin/python3 bench/transport/torch_rpc.py --bytes 67108864 \\
          --transport tcp
"""

import argparse
import json
import os
import socket
import statistics
import time

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

parameters = None


def make(elements):
    global parameters
    parameters = torch.zeros(elements)


def pull():
    return parameters


def push(gradient):
    parameters.sub_(gradient)


def options(port, transport):
    result = rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://127.0.0.1:{port}", num_worker_threads=4
    )
    if transport == "tcp":
        result = rpc.TensorPipeRpcBackendOptions(
            init_method=f"tcp://127.0.0.1:{port}",
            num_worker_threads=4,
            _transports=["uv"],
            _channels=["basic"],
        )
    return result


def seconds_of(call, seconds):
    call()
    times = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def run(rank, port, arguments, queue):
    torch.set_num_threads(1)
    rpc.init_rpc(
        "server" if rank == 0 else "client",
        rank=rank,
        world_size=2,
        rpc_backend_options=options(port, arguments.transport),
    )
    if rank == 1:
        elements = arguments.bytes // 4
        rpc.rpc_sync("server", make, args=(elements,))
        into = torch.zeros(elements)
        gradient = torch.ones(elements)

        def pull_into_place():
            into.copy_(rpc.rpc_sync("server", pull))

        def push_gradient():
            rpc.rpc_sync("server", push, args=(gradient,))

        queue.put(
            {
                "pull_seconds": seconds_of(pull_into_place, arguments.seconds),
                "push_seconds": seconds_of(push_gradient, arguments.seconds),
            }
        )
    rpc.shutdown()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument(
        "--transport", choices=["default", "tcp"], default="default"
    )
    arguments = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    mp.spawn(run, args=(port, arguments, queue), nprocs=2)
    print(json.dumps(queue.get()))


if __name__ == "__main__":
    main()
