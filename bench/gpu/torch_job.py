#!/usr/bin/env python3
"""A step of a PyTorch script on a GPU: torch.optim alone, and with servers.

The model and the batch are those of torch_gpu.py. A step is zero_grad, forward,
backward and the optimizer's step, timed by the host's clock with a
synchronisation at its end; the figure is the median. Without a cluster it is
torch.optim alone. Prints one line of JSON.

Run:  python3 bench/gpu/torch_job.py
      weir run --ps 1 --workers 1 -- python3 bench/gpu/torch_job.py --overlap
"""

import argparse
import json
import statistics
import time

import torch
import torch_gpu
from torch import nn

import weir.torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--model", choices=sorted(torch_gpu.SHAPES), default="alexnet"
    )
    parser.add_argument(
        "--precision", choices=["fp32", "tf32", "bf16"], default="fp32"
    )
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--mode", choices=["async", "sync"], default="async")
    parser.add_argument("--overlap", action="store_true")
    arguments = parser.parse_args()
    weir.torch.init()
    device = weir.torch.device()
    torch_gpu.set_precision(arguments.precision)
    torch.manual_seed(1)
    model = torch_gpu.make_model(arguments.model).to(device)
    optimizer = weir.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-3),
        model=model,
        mode=arguments.mode,
        overlap=arguments.overlap,
    )
    shape = torch_gpu.SHAPES[arguments.model]
    images = torch.rand(arguments.batch, *shape, device=device)
    classes = torch_gpu.CLASSES[arguments.model]
    labels = torch.randint(classes, (arguments.batch,), device=device)
    times = []
    for _ in range(torch_gpu.WARM_UP + arguments.steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(
            device.type,
            torch.bfloat16,
            enabled=arguments.precision == "bf16",
        ):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        torch_gpu.synchronise(device.type)
        times.append(time.perf_counter() - begin)
    optimizer.finish()
    print(
        json.dumps(
            {
                "model": arguments.model,
                "precision": arguments.precision,
                "servers": optimizer.pushes > 0,
                "mode": arguments.mode,
                "overlap": arguments.overlap,
                "ms": 1e3 * statistics.median(times[torch_gpu.WARM_UP :]),
                "loss": loss.item(),
            }
        )
    )


if __name__ == "__main__":
    main()
