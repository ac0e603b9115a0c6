#!/usr/bin/env python3
"""The models of gpu_models.cc in PyTorch, as `weir bench gpu --peers` asks.

A step is forward, loss and backward, without an optimizer; gradients are set to
None before it. The batch stays on the device. A step is timed by the host's
clock with a synchronisation after it, as gpu_bench times ours. It tries eager
mode, CUDA graphs by hand and torch.compile in two modes, and images in both
memory formats. bf16 is autocast with float32 parameters and gradients. Prints
one JSON object.

Run:  python3 bench/gpu/torch_gpu.py --model alexnet --precision bf16 \\
          --batch 256
      python3 bench/gpu/torch_gpu.py --copies
"""

import argparse
import contextlib
import json
import statistics
import sys
import time

try:
    import torch
    from torch import nn
except ImportError as error:
    print(
        json.dumps(
            {
                "error": f"{sys.executable} has no PyTorch ({error}); "
                "name another with --python"
            }
        )
    )
    sys.exit(0)

WARM_UP = 10
HOWS = ["eager", "graph", "compile reduce-overhead", "compile max-autotune"]
SHAPES = {"mlp": (1, 28, 28), "convnet": (1, 28, 28), "alexnet": (3, 224, 224)}
CLASSES = {"mlp": 10, "convnet": 10, "alexnet": 1000}


def make_model(name):
    def relu():
        return nn.ReLU(inplace=True)

    if name == "mlp":
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, 4096),
            relu(),
            nn.Linear(4096, 4096),
            relu(),
            nn.Linear(4096, 10),
        )
    if name == "convnet":
        return nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            relu(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            relu(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 7 * 7, 128),
            relu(),
            nn.Dropout(0.25),
            nn.Linear(128, 10),
        )
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2),
        relu(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2),
        relu(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1),
        relu(),
        nn.Conv2d(384, 256, 3, padding=1),
        relu(),
        nn.Conv2d(256, 256, 3, padding=1),
        relu(),
        nn.MaxPool2d(3, 2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(256 * 6 * 6, 4096),
        relu(),
        nn.Dropout(0.5),
        nn.Linear(4096, 4096),
        relu(),
        nn.Linear(4096, 1000),
    )


def set_precision(precision):
    tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True


def synchronise(device):
    if device == "cuda":
        torch.cuda.synchronize()


class Step:
    """One model with its batch; run() is one training step."""

    def __init__(self, arguments, how, channels_last):
        torch.manual_seed(1)
        if how.startswith("compile"):
            torch.compiler.reset()
        name = arguments.model
        device = arguments.device
        layout = (
            torch.channels_last if channels_last else torch.contiguous_format
        )
        self.model = make_model(name).to(device, memory_format=layout)
        self.images = torch.rand(
            arguments.batch, *SHAPES[name], device=device
        ).to(memory_format=layout)
        self.labels = torch.randint(
            CLASSES[name], (arguments.batch,), device=device
        )
        self.bf16 = arguments.precision == "bf16"
        self.device = device
        self.run = self.plain
        if how.startswith("compile"):
            self.loss = torch.compile(self.loss, mode=how.split()[1])
            self.run = self.compiled
        if how == "graph":
            self.capture()

    def loss(self, images, labels):
        # The cache would keep a graph's casts of parameters for the next one.
        cast = (
            torch.autocast(self.device, torch.bfloat16, cache_enabled=False)
            if self.bf16
            else contextlib.nullcontext()
        )
        with cast:
            return nn.functional.cross_entropy(self.model(images), labels)

    def plain(self):
        self.model.zero_grad(set_to_none=True)
        self.loss(self.images, self.labels).backward()

    def compiled(self):
        torch.compiler.cudagraph_mark_step_begin()
        self.plain()

    def capture(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.plain()
        torch.cuda.current_stream().wait_stream(stream)
        self.model.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.loss(self.images, self.labels).backward()
        self.run = graph.replay


def median_ms(step, steps):
    times = []
    for i in range(WARM_UP + steps):
        begin = time.perf_counter()
        step.run()
        synchronise(step.device)
        if i >= WARM_UP:
            times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def measure_steps(arguments):
    set_precision(arguments.precision)
    times = {}
    failed = {}
    for how in arguments.hows.split(","):
        for channels_last in (False, True):
            if channels_last and arguments.model == "mlp":
                continue
            name = how + (", channels last" if channels_last else "")
            if how == "graph" and arguments.device != "cuda":
                continue
            try:
                times[name] = median_ms(
                    Step(arguments, how, channels_last), arguments.steps
                )
            except Exception as error:  # the others still count
                failed[name] = str(error).strip().split("\n")[0]
            if arguments.device == "cuda":
                torch.cuda.empty_cache()
    if not times:
        return {"error": f"nothing ran: {failed}"}
    best = min(times, key=times.get)
    eager = [ms for name, ms in times.items() if name.startswith("eager")]
    return {
        "torch": torch.__version__,
        "ms": times,
        "failed": failed,
        "eager_ms": min(eager or [times[best]]),
        "best": best,
        "best_ms": times[best],
    }


def measure_copies(arguments):
    """Measures the link's rate by one large pinned copy each way."""
    if arguments.device != "cuda":
        return {"error": "only a GPU has copies"}
    host = torch.empty(arguments.mib << 20, dtype=torch.uint8, pin_memory=True)
    device = torch.empty_like(host, device="cuda")
    rates = {}
    for name, to, source in (
        ("up_gbs", device, host),
        ("down_gbs", host, device),
    ):
        times = []
        for _ in range(20):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            to.copy_(source, non_blocking=True)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        rates[name] = 1e-9 * host.numel() / statistics.median(times)
    return rates


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=sorted(SHAPES), default="mlp")
    parser.add_argument(
        "--precision", choices=["fp32", "tf32", "bf16"], default="fp32"
    )
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--hows", default=",".join(HOWS))
    parser.add_argument("--copies", action="store_true")
    parser.add_argument("--mib", type=int, default=512)
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        result = {"error": f"PyTorch {torch.__version__} sees no GPU"}
    elif arguments.copies:
        result = measure_copies(arguments)
    else:
        result = measure_steps(arguments)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
