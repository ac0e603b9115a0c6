"""Writes the goldens of tests/server/ps/optimizer.

Run from this folder: /usr/bin/python3 make_goldens.py
Made with torch 1.13.0a0 (Debian's 1.13.1), numpy 1.24.2, CPython 3.11.

inputs.f32          w0 [N], then gradients [STEPS, N], little-endian float32.
cases.txt           "name learning_rate optimizer-textproto" per line.
cycles.txt          "name rate(0) momentum(0) rate(1) momentum(1) ..." of the
                    cases that torch's OneCycleLR or CyclicLR drives, which
                    change the momentum (adam: beta1) with the rate.
reference.f32       values after STEPS steps, [cases, N], as torch computes
                    them on a processor with fused multiply-add.
reference_plain.f32 the same from ATEN_CPU_CAPABILITY=default: torch's own
                    kernels without fused multiply-add.
schedules.txt       "name rate(0) rate(1) ..." from torch.optim.lr_scheduler.
FTRL, which torch lacks, is TensorFlow's ApplyFtrlV2 formula in float32 numpy;
it is the same in both files.
"""

import os
import subprocess
import sys

import numpy as np

N = 320
STEPS = 50
CASES = [
    # name, learning rate, textproto, torch class, torch arguments
    ("sgd_plain", 0.1, "sgd {}", "SGD", {}),
    (
        "sgd_decay",
        0.1,
        "sgd { weight_decay: 0.01 }",
        "SGD",
        dict(weight_decay=0.01),
    ),
    ("sgd_momentum", 0.1, "sgd { momentum: 0.9 }", "SGD", dict(momentum=0.9)),
    (
        "sgd_dampening",
        0.1,
        "sgd { momentum: 0.9 dampening: 0.3 weight_decay: 0.01 }",
        "SGD",
        dict(momentum=0.9, dampening=0.3, weight_decay=0.01),
    ),
    (
        "sgd_nesterov",
        0.1,
        "sgd { momentum: 0.9 nesterov: true weight_decay: 0.01 }",
        "SGD",
        dict(momentum=0.9, nesterov=True, weight_decay=0.01),
    ),
    ("adagrad_plain", 0.01, "adagrad {}", "Adagrad", {}),
    (
        "adagrad_all",
        0.05,
        "adagrad { lr_decay: 0.1 weight_decay: 0.01 "
        "initial_accumulator: 0.2 epsilon: 1e-6 }",
        "Adagrad",
        dict(
            lr_decay=0.1,
            weight_decay=0.01,
            initial_accumulator_value=0.2,
            eps=1e-6,
        ),
    ),
    ("rmsprop_plain", 0.01, "rmsprop {}", "RMSprop", {}),
    (
        "rmsprop_momentum",
        0.01,
        "rmsprop { momentum: 0.8 }",
        "RMSprop",
        dict(momentum=0.8),
    ),
    (
        "rmsprop_centered",
        0.01,
        "rmsprop { centered: true epsilon: 1e-3 }",
        "RMSprop",
        dict(centered=True, eps=1e-3),
    ),
    (
        "rmsprop_all",
        0.01,
        "rmsprop { alpha: 0.95 epsilon: 1e-3 "
        "weight_decay: 0.01 momentum: 0.8 centered: true }",
        "RMSprop",
        dict(
            alpha=0.95, eps=1e-3, weight_decay=0.01, momentum=0.8, centered=True
        ),
    ),
    ("adadelta_plain", 1.0, "adadelta {}", "Adadelta", {}),
    (
        "adadelta_all",
        0.5,
        "adadelta { rho: 0.95 epsilon: 1e-5 weight_decay: 0.01 }",
        "Adadelta",
        dict(rho=0.95, eps=1e-5, weight_decay=0.01),
    ),
    ("adam_plain", 0.001, "adam {}", "Adam", {}),
    (
        "adam_all",
        0.01,
        "adam { beta1: 0.8 beta2: 0.99 epsilon: 1e-6 "
        "weight_decay: 0.01 amsgrad: true }",
        "Adam",
        dict(betas=(0.8, 0.99), eps=1e-6, weight_decay=0.01, amsgrad=True),
    ),
    (
        "adam_amsgrad",
        0.001,
        "adam { amsgrad: true }",
        "Adam",
        dict(amsgrad=True),
    ),
    ("adamw_plain", 0.001, "adamw {}", "AdamW", {}),
    (
        "adamw_all",
        0.01,
        "adamw { beta1: 0.8 beta2: 0.99 epsilon: 1e-6 "
        "weight_decay: 0.1 amsgrad: true }",
        "AdamW",
        dict(betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1, amsgrad=True),
    ),
    ("ftrl_plain", 0.05, "ftrl {}", "FTRL", {}),
    (
        "ftrl_all",
        0.05,
        "ftrl { initial_accumulator: 0.3 l1: 0.01 l2: 0.02 "
        "l2_shrinkage: 0.03 beta: 0.5 }",
        "FTRL",
        dict(n0=0.3, l1=0.01, l2=0.02, shrink=0.03, beta=0.5),
    ),
    (
        "ftrl_power",
        0.05,
        "ftrl { learning_rate_power: -0.7 l1: 0.001 }",
        "FTRL",
        dict(power=-0.7, l1=0.001),
    ),
    (
        "sgd_cycle",
        0.1,
        "sgd { momentum: 0.9 dampening: 0.3 weight_decay: 0.01 }",
        "SGD",
        dict(momentum=0.9, dampening=0.3, weight_decay=0.01),
    ),
    (
        "sgd_cycle_nesterov",
        0.1,
        "sgd { momentum: 0.9 nesterov: true }",
        "SGD",
        dict(momentum=0.9, nesterov=True),
    ),
    (
        "sgd_cycle_zero",
        0.1,
        "sgd { momentum: 0.9 nesterov: true }",
        "SGD",
        dict(momentum=0.9, nesterov=True),
    ),
    (
        "rmsprop_cycle",
        0.01,
        "rmsprop { momentum: 0.8 }",
        "RMSprop",
        dict(momentum=0.8),
    ),
    (
        "rmsprop_cycle_zero",
        0.01,
        "rmsprop { epsilon: 1e-3 weight_decay: 0.01 "
        "momentum: 0.8 centered: true }",
        "RMSprop",
        dict(eps=1e-3, weight_decay=0.01, momentum=0.8, centered=True),
    ),
    ("adam_cycle", 0.01, "adam { amsgrad: true }", "Adam", dict(amsgrad=True)),
    ("adamw_cycle", 0.01, "adamw {}", "AdamW", {}),
]


def make_inputs():
    rng = np.random.RandomState(20261121)
    w0 = (0.05 * rng.randn(N)).astype(np.float32)
    scale = 10.0 ** rng.uniform(-6, 2, size=N)
    grads = (scale * rng.randn(STEPS, N)).astype(np.float32)
    grads[rng.rand(STEPS, N) < 0.05] = 0  # an element without a gradient
    return w0, grads


def run_ftrl(w0, grads, lr, n0=0.1, l1=0, l2=0, shrink=0, beta=0, power=-0.5):
    f = np.float32
    w = w0.copy()
    n = np.full_like(w, f(n0))
    z = np.zeros_like(w)
    p = f(-power)
    lr, l1 = f(lr), f(l1)
    l2 = f(l2 + beta / (2 * float(lr)))

    def raised(x):
        return np.sqrt(x) if power == -0.5 else x**p

    for g in grads:
        new_n = n + g * g
        g_s = g + f(2) * f(shrink) * w
        z = z + (g_s - (raised(new_n) - raised(n)) / lr * w)
        x = l1 * np.sign(z) - z
        y = raised(new_n) / lr + f(2) * l2
        w = np.where(np.abs(z) > l1, x / y, f(0)).astype(f)
        n = new_n
    return w


def make_scheduler(name, optimizer, lr):
    from torch.optim import lr_scheduler as s

    if "_cycle" not in name:
        return None
    if name.endswith("_zero"):  # down to no momentum at all
        return s.CyclicLR(
            optimizer,
            base_lr=lr / 10,
            max_lr=lr,
            step_size_up=5,
            base_momentum=0,
            max_momentum=0.9,
        )
    return s.OneCycleLR(optimizer, max_lr=lr, total_steps=STEPS)


def run_torch(name, kind, arguments, lr, w0, grads):
    """Returns the values, and rate and momentum of each step."""
    import torch

    w = torch.nn.Parameter(torch.from_numpy(w0.copy()))
    optimizer = getattr(torch.optim, kind)([w], lr=lr, **arguments)
    scheduler = make_scheduler(name, optimizer, lr)
    given = []
    for g in grads:
        group = optimizer.param_groups[0]
        betas = group.get("betas", (None,))
        given += [group["lr"], group.get("momentum", betas[0])]
        w.grad = torch.from_numpy(g.copy())
        optimizer.step()
        if scheduler:
            scheduler.step()
    return w.detach().numpy(), given


def run_cases(path):
    w0, grads = make_inputs()
    with open(path, "wb") as out:
        for name, lr, _, kind, arguments in CASES:
            if kind == "FTRL":
                w = run_ftrl(w0, grads, lr, **arguments)
            else:
                w, _ = run_torch(name, kind, arguments, lr, w0, grads)
            out.write(w.astype("<f4").tobytes())


def write_cycles(path):
    w0, grads = make_inputs()
    with open(path, "w") as out:
        for name, lr, _, kind, arguments in CASES:
            if "_cycle" in name:
                _, given = run_torch(name, kind, arguments, lr, w0, grads)
                assert (0 in given) == name.endswith("_zero"), name
                out.write(name + " " + " ".join(repr(v) for v in given) + "\n")


def write_schedules(path):
    import torch
    from torch.optim import lr_scheduler as s

    def rates(make, count=120):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.4)
        scheduler = make(optimizer)
        out = []
        for _ in range(count):
            out.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return out

    table = {
        "constant": rates(lambda o: s.LambdaLR(o, lambda t: 1.0)),
        "step": rates(lambda o: s.StepLR(o, step_size=30, gamma=0.1)),
        "exponential": rates(lambda o: s.ExponentialLR(o, gamma=0.97)),
        # Periodic in torch; Weir stays at the floor after `steps`.
        "cosine": rates(
            lambda o: s.CosineAnnealingLR(o, T_max=100, eta_min=0.04), 101
        ),
        "warmup": rates(
            lambda o: s.LinearLR(o, start_factor=1 / 10, total_iters=9)
        ),
    }
    with open(path, "w") as out:
        for name, values in table.items():
            out.write(name + " " + " ".join(repr(v) for v in values) + "\n")


def main():
    if len(sys.argv) == 2:
        run_cases(sys.argv[1])
        return
    w0, grads = make_inputs()
    with open("inputs.f32", "wb") as out:
        out.write(w0.astype("<f4").tobytes())
        out.write(grads.astype("<f4").tobytes())
    with open("cases.txt", "w") as out:
        for name, lr, text, _, _ in CASES:
            out.write(f"{name} {lr} {text}\n")
    run_cases("reference.f32")
    subprocess.run(
        [sys.executable, __file__, "reference_plain.f32"],
        check=True,
        env=dict(os.environ, ATEN_CPU_CAPABILITY="default"),
    )
    write_cycles("cycles.txt")
    write_schedules("schedules.txt")


if __name__ == "__main__":
    main()
