#!/usr/bin/python3
"""What a flood of requests to the admin ports costs a job.

A job of one ps, one worker and a chief trains; a process in a control group of
a twentieth of a processor asks all three admin ports for everything as fast as
it can, by turns for five seconds, and for five it spins: what it takes itself
is no cost of the ports. Prints the steps of each pair, the ratio's median with
its 95% interval (bootstrap), and what part of a core each task took beyond its
quiet windows.

Run, as root:
  export PYTHONPATH=tests/diagnosis:tests/support WEIR_BIN_DIR=bin
  python3 bench/training/admin_flood.py [--pairs N]
"""

import argparse
import contextlib
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import time

from causes_test import Cluster, cpu_group, free_port

WINDOW_SECONDS = 5.0
FLOOD_SHARE = 0.05  # of a processor
CONNECTIONS = 12  # of the flood, to each port
PATHS = ["/metrics", "/", "/report", "/healthz", "/curve", "/none"]
ROLES = ("ps", "chief", "worker")


def flood(ports):
    """Asks or spins; a connection that is refused or closed is made anew."""
    draw = random.Random(1)
    open_ones = []
    asks = False

    def turn(number, _frame):
        nonlocal asks
        asks = number == signal.SIGUSR1

    signal.signal(signal.SIGUSR1, turn)
    signal.signal(signal.SIGUSR2, turn)
    while True:
        if not asks:
            while open_ones:
                open_ones.pop().close()
            continue
        while len(open_ones) < CONNECTIONS * len(ports):
            one = socket.socket()
            one.settimeout(0.2)
            with contextlib.suppress(OSError):
                one.connect(("127.0.0.1", draw.choice(ports)))
                open_ones.append(one)
                continue
            one.close()
            break
        for one in list(open_ones):
            request = f"GET {draw.choice(PATHS)} HTTP/1.1\r\nHost: a\r\n\r\n"
            try:
                one.setblocking(False)
                one.send(request.encode())
                one.recv(1 << 20)
            except BlockingIOError:
                pass
            except OSError:
                one.close()
                open_ones.remove(one)


def start_job():
    """The job, and the admin port of each role."""
    job = Cluster(seed=1, ps=1, workers=1, units=256)
    ports = {role: free_port() for role in ROLES}
    for role, port in ports.items():
        job.flags[f"{role}/0"] = [
            *["--admin_address", "127.0.0.1"],
            *["--admin_port", str(port)],
        ]
    job.start_all()
    job.wait_for_training()
    return job, ports


def cpu_seconds(job):
    """Of each task so far."""
    tick = os.sysconf("SC_CLK_TCK")
    seconds = {}
    for role in ROLES:
        pid = job.tasks[f"{role}/0"].pid
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        fields = stat.rsplit(") ", 1)[1].split()
        seconds[role] = (int(fields[11]) + int(fields[12])) / tick
    return seconds


def window(job):
    """Steps a second of one window, and cores of each task."""
    cpu, begin = cpu_seconds(job), time.monotonic()
    first = job.report()
    time.sleep(WINDOW_SECONDS)
    last = job.report()
    seconds = time.monotonic() - begin
    after = cpu_seconds(job)
    cores = {role: (after[role] - cpu[role]) / seconds for role in cpu}
    elapsed = last["unix_seconds"] - first["unix_seconds"]
    return (last["step"] - first["step"]) / elapsed, cores


def measure(job, ports, pairs):
    group = cpu_group("flood", FLOOD_SHARE)
    asker = subprocess.Popen(
        [sys.executable, __file__, "--flood"]
        + [str(port) for port in ports.values()]
    )
    group.add(asker.pid)
    time.sleep(2)
    ratios, more = [], {role: [] for role in ROLES}
    try:
        for pair in range(pairs):
            rates = {}
            for on in (False, True) if pair % 2 == 0 else (True, False):
                asker.send_signal(signal.SIGUSR1 if on else signal.SIGUSR2)
                time.sleep(1)
                rates[on] = window(job)
            ratios.append(rates[True][0] / rates[False][0])
            for role, cores in more.items():
                cores.append(rates[True][1][role] - rates[False][1][role])
            print(
                f"steps/s quiet {rates[False][0]:.1f}, flooded "
                f"{rates[True][0]:.1f}, ratio {ratios[-1]:.3f}",
                flush=True,
            )
    finally:
        asker.kill()
        asker.wait()
        group.remove()
    draw = random.Random(1)
    medians = sorted(
        statistics.median(draw.choices(ratios, k=pairs)) for _ in range(4000)
    )
    print(
        f"ratio, median of {pairs}: {statistics.median(ratios):.3f}, 95% "
        f"{medians[100]:.3f} to {medians[3899]:.3f}"
    )
    for role, cores in more.items():
        print(f"cores more, {role}: {statistics.median(cores):.3f}")


def main():
    if sys.argv[1:2] == ["--flood"]:
        flood([int(port) for port in sys.argv[2:]])
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    job, ports = start_job()
    try:
        measure(job, ports, arguments.pairs)
    finally:
        job.close()


if __name__ == "__main__":
    main()
