"""A small transformer that learns to write text, byte by byte.

    weir run --ps 2 --workers 2 -- python char_lm.py --text FILE

Without --text it reads the source of Python's argparse; without `weir run` it
trains by itself. It shows what a PyTorch script does beside its optimizer: a
schedule, clipping, and a DataLoader; lines that are Weir's are marked.
"""

import argparse
import math
import pathlib

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import weir.torch as weir  # Weir

CONTEXT = 64
WARMUP = 20


class Windows(Dataset):
    """Every stretch of CONTEXT bytes, each with the byte that follows."""

    def __init__(self, text):
        self.bytes = torch.tensor(list(text))

    def __len__(self):
        return len(self.bytes) - CONTEXT

    def __getitem__(self, begin):
        window = self.bytes[begin : begin + CONTEXT + 1]
        return window[:-1], window[1:]


class Transformer(nn.Module):
    def __init__(self, width=96, layers=2, heads=4):
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.places = nn.Parameter(0.02 * torch.randn(CONTEXT, width))
        layer = nn.TransformerEncoderLayer(
            width,
            heads,
            4 * width,
            dropout=0.0,
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, layers)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 256, bias=False)
        self.out.weight = self.bytes.weight  # tied
        nn.init.normal_(self.bytes.weight, std=0.1)
        future = torch.full((CONTEXT, CONTEXT), -math.inf).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, x):  # [batch, time]
        time = x.shape[1]
        hidden = self.bytes(x) + self.places[:time]
        hidden = self.layers(hidden, self.future[:time, :time])
        return self.out(self.norm(hidden))  # [batch, time, 256]


@torch.no_grad()
def sample(model, text, count, device):
    for _ in range(count):
        x = torch.tensor([list(text[-CONTEXT:])], device=device)
        chances = functional.softmax(model(x)[0, -1] / 0.7, 0)
        text += bytes([torch.multinomial(chances, 1).item()])
    return text.decode(errors="replace")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=pathlib.Path, default=argparse.__file__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--print_every", type=int, default=50)
    args = parser.parse_args()
    data = Windows(pathlib.Path(args.text).read_bytes())

    weir.init()  # Weir
    device = weir.device()  # Weir
    torch.manual_seed(1)
    model = Transformer().to(device)
    optimizer = weir.DistributedOptimizer(  # Weir
        torch.optim.AdamW(model.parameters(), lr=3e-3), model=model
    )
    sampler = weir.DistributedSampler(data, args.batch_size)  # Weir
    loader = DataLoader(data, args.batch_size, sampler=sampler)

    # Steps are dealt to the workers; one that was started again begins later.
    steps = args.steps // weir.size()
    first = optimizer.pushes

    def schedule(step):
        step += first
        return min(
            (step + 1) / WARMUP,
            0.55 + 0.45 * math.cos(math.pi * min(step / steps, 1.0)),
        )

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    step = first
    while step < steps:
        for x, y in loader:
            logits = model(x.to(device))
            loss = functional.cross_entropy(
                logits.flatten(0, 1), y.to(device).flatten()
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            step += 1
            if step % args.print_every == 0 or step in (1, steps):
                print(f"step {step}/{steps} loss {loss.item():.3f}")
            if step == steps:
                break

    if weir.rank() == 0:
        model.eval()
        print(sample(model, b"def ", 200, device))


if __name__ == "__main__":
    main()
