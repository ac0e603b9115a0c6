#!/usr/bin/python3
"""Trains click models by Weir and by PyTorch on the same rows.

`./weir bench ctr` runs it.

models: DeepFM and DLRM of examples/ctr_*.textproto, one epoch over a generated
  click log. Weir trains with 2 ps and 2 workers, sync (2 contributions of the
  job's batch a step) and async; PyTorch in one process and one thread, with the
  same initial distributions, optimizers and rates, once with a batch of both
  contributions and once of one. All are judged on the same held-out rows,
  beside the probabilities that the clicks were drawn with.
budget: DLRM again, async, with tables that may only take a share of the memory
  that they took; a watcher asks every ps for its bytes all the while.

Run:  ./weir bench ctr [--rows N] [--ids N] [--skip_budget] [--json FILE]
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
BIN = os.environ.get("WEIR_BIN_DIR", os.path.join(ROOT, "bin"))
WORKERS = 2
BATCH = 512  # of the jobs: one contribution
DENSE_RATE, TABLE_RATE = 0.02, 0.05
DIM = 16


def auc(scores, labels):
    """The area under the ROC curve; ties count one half."""
    values, inverse, counts = np.unique(
        scores, return_inverse=True, return_counts=True
    )
    del values
    ranks = np.cumsum(counts) - (counts - 1) / 2
    positive = labels > 0.5
    positives = int(positive.sum())
    negatives = len(labels) - positives
    above = ranks[inverse[positive]].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


class Rows:
    """A click log as `ctr_tool rows` writes it."""

    def __init__(self, prefix):
        def load(name, kind):
            return np.fromfile(f"{prefix}.{name}", kind)

        self.labels = load("labels", np.float32)
        self.truth = load("truth", np.float32)
        count = len(self.labels)
        self.features = torch.from_numpy(
            load("features", np.float32).reshape(count, -1)
        )
        self.ids = torch.from_numpy(load("ids", np.int64).reshape(count, -1))


def dense(inputs, units):
    layer = nn.Linear(inputs, units)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def table(rows, dim, limit):
    layer = nn.Embedding(rows, dim, sparse=True)
    nn.init.uniform_(layer.weight, -limit, limit)
    return layer


class DeepFm(nn.Module):
    """The model of examples/ctr_deepfm.textproto."""

    def __init__(self, numeric, features, rows):
        super().__init__()
        self.tables = nn.ModuleList(
            [table(rows, 1, 0.0), table(rows, DIM, 0.01)]
        )
        self.deep = nn.Sequential(
            dense(numeric + features * DIM, 64),
            nn.ReLU(),
            dense(64, 32),
            nn.ReLU(),
            dense(32, 1),
        )

    def forward(self, numbers, ids):
        first = self.tables[0](ids).sum(1)
        rows = self.tables[1](ids)
        second = (rows.sum(1).square() - rows.square().sum(1)).sum(
            1, keepdim=True
        ) / 2
        deep = self.deep(torch.cat([numbers, rows.flatten(1)], 1))
        return (first + second + deep)[:, 0]


class Dlrm(nn.Module):
    """The model of examples/ctr_dlrm.textproto."""

    def __init__(self, numeric, features, rows):
        super().__init__()
        self.tables = nn.ModuleList([table(rows, DIM, 0.01)])
        self.bottom = nn.Sequential(
            dense(numeric, 64), nn.ReLU(), dense(64, DIM), nn.ReLU()
        )
        vectors = features + 1
        self.pairs = torch.tril_indices(vectors, vectors, -1)
        self.top = nn.Sequential(
            dense(DIM + self.pairs.shape[1], 64), nn.ReLU(), dense(64, 1)
        )

    def forward(self, numbers, ids):
        bottom = self.bottom(numbers)
        vectors = torch.cat([bottom[:, None], self.tables[0](ids)], 1)
        products = vectors @ vectors.transpose(1, 2)
        dots = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([bottom, dots], 1))[:, 0]


MODELS = {"deepfm": DeepFm, "dlrm": Dlrm}


def run_torch(arguments):
    """Trains one epoch in this process; returns the held-out AUC."""
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    train = Rows(os.path.join(arguments.directory, "train"))
    held_out = Rows(os.path.join(arguments.directory, "held_out"))
    rows = int(max(train.ids.max(), held_out.ids.max())) + 1
    model = MODELS[arguments.model](
        train.features.shape[1], train.ids.shape[1], rows
    )
    of_tables = list(model.tables.parameters())
    others = [
        p for n, p in model.named_parameters() if not n.startswith("tables")
    ]
    optimizers = [
        torch.optim.Adagrad(others, lr=DENSE_RATE),
        torch.optim.Adagrad(of_tables, lr=TABLE_RATE),
    ]
    loss_of = nn.BCEWithLogitsLoss()
    labels = torch.from_numpy(train.labels)
    begin = time.perf_counter()
    for at in torch.randperm(len(labels)).split(arguments.batch):
        loss = loss_of(model(train.features[at], train.ids[at]), labels[at])
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    seconds = time.perf_counter() - begin
    with torch.no_grad():
        scores = torch.cat(
            [
                model(numbers, ids)
                for numbers, ids in zip(
                    held_out.features.split(8192), held_out.ids.split(8192)
                )
            ]
        )
    return {
        "auc": auc(scores.numpy(), held_out.labels),
        "truth": auc(held_out.truth, held_out.labels),
        "seconds": seconds,
    }


def call_torch(model, batch, directory, seed=1):
    out = subprocess.run(
        [
            sys.executable,
            os.path.abspath(__file__),
            "--torch",
            "--model",
            model,
            "--batch",
            str(batch),
            "--directory",
            directory,
            "--seed",
            str(seed),
        ],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )
    return json.loads(out.stdout)


def job_of(model):
    return os.path.join(ROOT, "examples", f"ctr_{model}.textproto")


def source_sets(arguments):
    sets = []
    for path, count in (
        ("data.train", arguments.rows),
        ("evaluation.source", arguments.held_out),
    ):
        sets.append(f"{path}.click_log.count={count}")
        if arguments.ids:
            sets.append(f"{path}.click_log.ids_per_feature={arguments.ids}")
    return sets


def flags_of(sets):
    return [flag for one in sets for flag in ("--set", one)]


def ps_addresses(workdir, process):
    """Finds the run's ps in their logs; None when the run ended before."""
    logs = os.path.join(workdir, "logs")
    while process.poll() is None:
        found = []
        for name in sorted(os.listdir(logs) if os.path.isdir(logs) else []):
            with open(os.path.join(logs, name), encoding="utf-8") as log:
                found += re.findall(
                    r" ps/\d+ I serving on ([\d.:]+)", log.read()
                )
        if len(found) == 2:
            return found
        time.sleep(0.02)
    return None


def call_weir(model, sets, watch=False):
    """Trains one epoch by `weir train`."""
    with tempfile.TemporaryDirectory() as workdir:
        process = subprocess.Popen(
            [
                os.path.join(BIN, "deploy/cli/weir_cli"),
                "train",
                job_of(model),
                "--ps",
                "2",
                "--workers",
                str(WORKERS),
                "--workdir",
                workdir,
                *flags_of(sets),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(
                os.environ,
                WEIR_BIN_DIR=BIN,
                # As ps_addresses reads it.
                WEIR_LOG_FORMAT="text",
                WEIR_LOG_LEVEL="info",
            ),
        )
        watched = None
        if watch:
            addresses = ps_addresses(workdir, process)
            if addresses is None:
                raise SystemExit(
                    f"weir train ended with {process.returncode} before its "
                    "ps served"
                )
            watched = json.loads(
                subprocess.run(
                    [
                        os.path.join(BIN, "bench/tables/ctr_tool"),
                        "watch",
                        ",".join(addresses),
                    ],
                    stdout=subprocess.PIPE,
                    check=True,
                ).stdout
            )
        if process.wait() != 0:
            raise SystemExit(f"weir train ended with {process.returncode}")
        with open(os.path.join(workdir, "summary.json"), encoding="utf-8") as f:
            summary = json.load(f)
    return {
        "auc": summary["final_metrics"]["auc"],
        "seconds": summary["examples"] / summary["examples_per_second"],
        "staleness": summary["staleness"]["mean"],
        "tables": watched,
    }


def show(name, found, base=None):
    than = "" if base is None else f"  {found['auc'] - base:+.4f}"
    print(
        f"  {name:28s} {found['auc']:.4f}  {found['seconds']:7.1f} s{than}",
        flush=True,
    )


def compare(model, arguments, directory):
    """Trains one model on both sides; prints and returns what came out."""
    sets = source_sets(arguments)
    found = {"torch": call_torch(model, WORKERS * BATCH, directory)}
    truth, base = found["torch"]["truth"], found["torch"]["auc"]
    print(
        f"{model}: AUC on {arguments.held_out} rows, seconds of training, "
        f"AUC less PyTorch's; the truth has {truth:.4f}"
    )
    show("PyTorch, batch 1024", found["torch"])
    found["torch_seed_2"] = call_torch(model, WORKERS * BATCH, directory, 2)
    show("PyTorch, batch 1024, seed 2", found["torch_seed_2"], base)
    found["torch_half_batch"] = call_torch(model, BATCH, directory)
    show("PyTorch, batch 512", found["torch_half_batch"], base)
    found["sync"] = call_weir(
        model, sets + [f"update.sync.contributions={WORKERS}"]
    )
    show("weir, sync, 2 x 512", found["sync"], base)
    found["async"] = call_weir(model, sets)
    show("weir, async, 512", found["async"], base)
    print(
        f"  async less sync {found['async']['auc'] - found['sync']['auc']:+.4f}"
        f", staleness {found['async']['staleness']:.2f}"
    )
    return found


def budget(arguments):
    """What a bound on a table's memory costs DLRM."""
    sets = source_sets(arguments)
    free = call_weir("dlrm", sets, watch=True)
    most = [ps["ads"]["bytes_most"] for ps in free["tables"]]
    print(
        f"dlrm, async, by the memory of its table: {sum(most) / 1e6:.1f} MB "
        f"and {sum(ps['ads']['rows'] for ps in free['tables'])} rows unbounded"
    )
    show("unbounded", free)
    found = {"unbounded": free}
    for name, more in (
        ("least recent go", []),
        ("least frequent go", ["table[0].expiry.least_frequent=true"]),
    ):
        bound = int(arguments.share * max(most))
        one = call_weir(
            "dlrm",
            sets + [f"table[0].expiry.memory_bytes={bound}"] + more,
            watch=True,
        )
        found[name] = one
        show(f"{arguments.share} of it, {name}", one, free["auc"])
        for s, ps in enumerate(one["tables"]):
            of = ps["ads"]
            print(
                f"    ps {s}: at most {of['bytes_most']} of {bound} bytes in "
                f"{of['answers']} answers, {of['rows']} rows at the end, "
                f"{of['rows_dropped']} dropped"
            )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--held_out", type=int, default=200_000)
    parser.add_argument(
        "--ids", type=int, default=0, help="of a feature; default the jobs'"
    )
    parser.add_argument(
        "--share",
        type=float,
        default=0.25,
        help="of a table's memory, the budget",
    )
    parser.add_argument("--skip_models", action="store_true")
    parser.add_argument("--skip_budget", action="store_true")
    parser.add_argument("--json", help="write the results here, too")
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--model", choices=MODELS, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.torch:
        print(json.dumps(run_torch(arguments)))
        return
    result = {}
    if not arguments.skip_models:
        for model in MODELS:
            with tempfile.TemporaryDirectory() as directory:
                subprocess.run(
                    [
                        os.path.join(BIN, "bench/tables/ctr_tool"),
                        "rows",
                        job_of(model),
                        directory,
                        *flags_of(source_sets(arguments)),
                    ],
                    check=True,
                )
                result[model] = compare(model, arguments, directory)
    if not arguments.skip_budget:
        result["budget"] = budget(arguments)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
