#!/usr/bin/python3
"""The steps of network_bench.cc in PyTorch, one thread.

Run:  OMP_NUM_THREADS=1 /usr/bin/python3 bench/training/torch_step.py
"""

import time

import torch
from torch import nn

torch.set_num_threads(1)


def best_seconds(model, x, channels_last):
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (x.shape[0],))
    loss = nn.CrossEntropyLoss()

    def step():
        model.zero_grad(set_to_none=True)
        loss(model(x), y).backward()

    for _ in range(5):
        step()
    best = float("inf")
    for _ in range(30):
        begin = time.process_time()  # of the CPU: other load does not count
        step()
        best = min(best, time.process_time() - begin)
    return best


def mlp():
    return nn.Sequential(
        nn.Linear(784, 512),
        nn.ReLU(),
        nn.Linear(512, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


def convnet():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 49, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


print("torch", torch.__version__)
seconds = best_seconds(mlp(), torch.rand(64, 784), False)
print(f"mlp us {1e6 * seconds:.0f}")
for last in (False, True):
    seconds = best_seconds(convnet(), torch.rand(64, 1, 28, 28), last)
    layout = " channels_last" if last else ""
    print(f"convnet{layout} us {1e6 * seconds:.0f}")
