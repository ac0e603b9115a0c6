#!/usr/bin/python3
"""What a flood of requests to the admin ports costs a job.

A job of one ps, one worker and a chief trains; a process in a control group of
a twentieth of a processor asks all three admin ports for everything as fast as
it can, by turns for five seconds, and for five it spins: what it takes itself
is no cost of the ports. Prints the steps of each pair, the ratio's median with
its 95% interval (bootstrap), and what part of a core each task took beyond its
quiet windows.

Run, as root:
  WEIR_BIN_DIR=bin python3 bench/training/admin_flood.py [--pairs N]
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

BIN = pathlib.Path(os.environ["WEIR_BIN_DIR"]).resolve()
WINDOW_SECONDS = 5.0
FLOOD_SHARE = 0.05  # of a processor
CONNECTIONS = 12  # of the flood, to each port
PATHS = ["/metrics", "/", "/report", "/healthz", "/curve", "/none"]
JOB = """
name: "flood" seed: 3
model {
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 256 } }
  layer { name: "relu" relu {} }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 4000 } } }
train { batch_size: 64 steps: 100000000 log_every_steps: 10 }
optimizer { sgd {} }
schedule { learning_rate: 0.001 }
update { sync {} }
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


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


class Group:
    """A control group, of version 1 or 2, with a part of a processor."""

    def __init__(self, share):
        root = pathlib.Path("/sys/fs/cgroup")
        self.path = (
            root / "cpu" if (root / "cpu").is_dir() else root
        ) / "flood"
        self.path.mkdir(exist_ok=True)
        quota = int(100000 * share)
        if (self.path / "cpu.cfs_quota_us").exists():
            (self.path / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self.path / "cpu.max").write_text(f"{quota} 100000")

    def add(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))


class Job:
    def __init__(self, folder):
        self.folder = folder
        (folder / "job.textproto").write_text(JOB)
        roles = ("ps", "chief", "worker")
        cluster = {role: [f"127.0.0.1:{free_port()}"] for role in roles}
        self.chief = cluster["chief"][0]
        self.ports = {role: free_port() for role in roles}
        self.tasks = {}
        for role in roles:
            argv = [str(BIN / f"weir_{role}"), "--admin_address", "127.0.0.1"]
            argv += ["--admin_port", str(self.ports[role])]
            if role == "ps":
                argv += ["--checkpoint_root", str(folder / "checkpoints")]
            else:
                argv += ["--job", str(folder / "job.textproto")]
                argv += ["--workdir", str(folder)]
            task = {"type": role, "index": 0}
            config = json.dumps({"cluster": cluster, "task": task})
            with open(folder / f"{role}.log", "wb") as log:
                self.tasks[role] = subprocess.Popen(
                    argv,
                    env={
                        **os.environ,
                        "WEIR_INSECURE": "1",
                        "TF_CONFIG": config,
                    },
                    stdout=log,
                    stderr=log,
                )

    def step(self):
        """The job's step, and when it was that."""
        argv = [str(BIN / "weir_cli"), "top", "--chief", self.chief]
        done = subprocess.run(
            [*argv, "--output", "json", "--insecure"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            return 0, 0.0
        report = json.loads(done.stdout)
        return report["step"], report["unix_seconds"]

    def cpu_seconds(self):
        """Of each task so far."""
        tick = os.sysconf("SC_CLK_TCK")
        seconds = {}
        for role, task in self.tasks.items():
            stat = pathlib.Path(f"/proc/{task.pid}/stat").read_text()
            fields = stat.rsplit(") ", 1)[1].split()
            seconds[role] = (int(fields[11]) + int(fields[12])) / tick
        return seconds

    def window(self):
        """Steps a second of one window, and cores of each task."""
        cpu, begin = self.cpu_seconds(), time.monotonic()
        first, first_at = self.step()
        time.sleep(WINDOW_SECONDS)
        last, last_at = self.step()
        seconds = time.monotonic() - begin
        after = self.cpu_seconds()
        cores = {role: (after[role] - cpu[role]) / seconds for role in cpu}
        return (last - first) / (last_at - first_at), cores

    def close(self):
        for task in self.tasks.values():
            task.kill()
            task.wait()


def measure(job, pairs):
    group = Group(FLOOD_SHARE)
    asker = subprocess.Popen(
        [sys.executable, __file__, "--flood"]
        + [str(port) for port in job.ports.values()]
    )
    group.add(asker.pid)
    time.sleep(2)
    ratios, more = [], {role: [] for role in job.tasks}
    try:
        for pair in range(pairs):
            rates = {}
            for on in (False, True) if pair % 2 == 0 else (True, False):
                asker.send_signal(signal.SIGUSR1 if on else signal.SIGUSR2)
                time.sleep(1)
                rates[on] = job.window()
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
        group.path.rmdir()
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
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weir_flood"))
    job = Job(folder)
    try:
        end = time.monotonic() + 60
        while job.step()[0] < 10 and time.monotonic() < end:
            time.sleep(0.2)
        measure(job, arguments.pairs)
    finally:
        job.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
