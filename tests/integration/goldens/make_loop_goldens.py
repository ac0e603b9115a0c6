"""Trains an MLP and a ConvNet in PyTorch for 50 steps: the oracle of loop_test.

Writes, beside this script: the images and labels (IDX), the initial and final
parameters in Weir's names and layouts (safetensors) and the losses (JSON).

Run: /usr/bin/python3 tests/integration/goldens/make_loop_goldens.py
Made with Debian 12's torch 1.13.1 (reports 1.13.0a0) and numpy 1.24.2.
"""

import json
import os
import struct

import numpy as np
import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES, SIDE, CLASSES, BATCH, STEPS = 320, 8, 10, 16, 50


def write(name, data):
    with open(os.path.join(HERE, name), "wb") as f:
        f.write(data)


def make_data():
    """Blurred class templates under noise: learnable, not separable at once."""
    rng = np.random.default_rng(5)
    templates = rng.integers(0, 256, (CLASSES, SIDE, SIDE))
    labels = rng.integers(0, CLASSES, SAMPLES).astype(np.uint8)
    noise = rng.integers(0, 256, (SAMPLES, SIDE, SIDE))
    images = (0.5 * templates[labels] + 0.5 * noise).astype(np.uint8)
    write(
        "images-idx3-ubyte",
        struct.pack(">IIII", 0x803, SAMPLES, SIDE, SIDE) + images.tobytes(),
    )
    write(
        "labels-idx1-ubyte",
        struct.pack(">II", 0x801, SAMPLES) + labels.tobytes(),
    )
    x = torch.tensor(images, dtype=torch.float32).unsqueeze(1) / 255
    return x, torch.tensor(labels, dtype=torch.int64)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(SIDE * SIDE, 24)
        self.logits = nn.Linear(24, CLASSES)

    def forward(self, x):
        return self.logits(torch.relu(self.hidden(x.flatten(1))))


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.conv2 = nn.Conv2d(6, 8, 3)
        self.logits = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.avg_pool2d(torch.tanh(self.conv2(x)), 2)
        return self.logits(x.flatten(1))


def save(name, model):
    """Weir: dense kernels are [in, units], torch's are [out, in]."""
    header, blob = {"__metadata__": {"format": "pt"}}, b""
    for layer, module in model.named_children():
        weight = module.weight.detach().numpy()
        if isinstance(module, nn.Linear):
            weight = weight.T
        for part, value in (
            ("kernel", weight),
            ("bias", module.bias.detach().numpy()),
        ):
            data = np.ascontiguousarray(value, dtype="<f4").tobytes()
            header[f"{layer}/{part}"] = {
                "dtype": "F32",
                "shape": list(value.shape),
                "data_offsets": [len(blob), len(blob) + len(data)],
            }
            blob += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    write(name, struct.pack("<Q", len(text)) + text + blob)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.005),
}


def main():
    torch.set_num_threads(1)
    x, y = make_data()
    losses = {}
    for net in (Mlp, ConvNet):
        name = net.__name__.lower()
        for kind, make in OPTIMIZERS.items():
            torch.manual_seed(11)
            model = net()
            save(f"{name}_initial.safetensors", model)
            optimizer = make(model.parameters())
            curve = []
            for step in range(STEPS):
                rows = [(step * BATCH + i) % SAMPLES for i in range(BATCH)]
                loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                curve.append(loss.item())
            save(f"{name}_{kind}.safetensors", model)
            losses[f"{name}_{kind}"] = curve
    write("losses.json", json.dumps(losses, indent=1).encode())


main()
