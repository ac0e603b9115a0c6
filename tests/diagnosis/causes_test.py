"""Disturbs jobs in eight ways and checks that the report names the cause.

Each run is a real job of 2 ps, 3 workers and a chief whose disturbance has a
size that is drawn from the run's seed. What counts is the cause that most of
five reports name, ten seconds and more after the disturbance began.

  export WEIR_BIN_DIR=../../bin PYTHONPATH=../support
  WEIR_CAUSES_RUNS=5 python3 causes_test.py

Needs root, for control groups and swap. A run takes about half a minute;
`./weir test --full` does one of each.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing

from free_ports import free_port

BIN = pathlib.Path(os.environ["WEIR_BIN_DIR"]).resolve()
LINK = BIN / "tests/support/preload_link.so"
GPU = BIN / "tests/worker/compute/cuda/libweir_cuda_emulated.so"
SECRET = "the secret of the tests, which is long enough"
SETTLE_SECONDS = 13.0
REPORTS = 5

JOB = """
name: "causes" seed: 3
model {{
  layer {{ name: "flat" flatten {{}} }}
  layer {{ name: "hidden" dense {{ units: {units} }} }}
  layer {{ name: "relu" relu {{}} }}
  layer {{ name: "second" dense {{ units: {units} }} }}
  layer {{ name: "relu2" relu {{}} }}
  layer {{ name: "logits" dense {{ units: 10 }} }}
  loss {{ softmax_cross_entropy {{}} }}
}}
data {{ train {{ digits {{ count: 4000 }} }} }}
train {{ batch_size: {batch} steps: 1000000 log_every_steps: 10 }}
optimizer {{ sgd {{}} }}
schedule {{ learning_rate: 0.01 }}
update {{ {mode} {{}} }}
{more}
"""


class Group:
    """A control group of version 1 or 2 with one limit."""

    def __init__(self, controller, name, **files):
        root = pathlib.Path("/sys/fs/cgroup")
        first = root / controller
        self.path = (first if first.is_dir() else root) / name
        self.path.mkdir(exist_ok=True)
        for key, value in files.items():
            (self.path / key.replace("__", ".")).write_text(str(value))

    def add(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def remove(self):
        for _ in range(50):
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.1)


class Cluster:
    running: typing.ClassVar[list] = []  # to be ended

    def __init__(self, seed, mode="sync", ps=2, workers=3, units=512, **job):
        self.dir = tempfile.mkdtemp(prefix="causes")
        self.rng = random.Random(seed)
        job = {"batch": 64, "more": "", **job}
        text = JOB.format(mode=mode, units=units, **job)
        self.job = os.path.join(self.dir, "job.textproto")
        pathlib.Path(self.job).write_text(text)
        self.cluster = {
            "ps": [f"127.0.0.1:{free_port()}" for _ in range(ps)],
            "worker": [f"127.0.0.1:{free_port()}" for _ in range(workers)],
            "chief": [f"127.0.0.1:{free_port()}"],
        }
        self.tasks = {}
        self.groups = []
        self.starts_in = {}
        self.environment = {}
        self.flags = {}
        Cluster.running.append(self)

    def start(self, role, index):
        name = f"{role}/{index}"
        environment = {
            **os.environ,
            "WEIR_SECRET": SECRET,
            "TF_CONFIG": json.dumps(
                {
                    "cluster": self.cluster,
                    "task": {"type": role, "index": index},
                }
            ),
            **self.environment.get(name, {}),
        }
        argv = [str(BIN / f"weir_{role}")]
        if role == "ps":
            argv += ["--checkpoint_root", f"{self.dir}/checkpoints"]
        else:
            argv += ["--job", self.job, "--workdir", self.dir]
        argv += self.flags.get(name, [])
        with open(f"{self.dir}/{role}-{index}.log", "wb") as log:
            self.tasks[name] = subprocess.Popen(
                argv, env=environment, stdout=log, stderr=log
            )
        if name in self.starts_in:
            self.starts_in[name].add(self.tasks[name].pid)
        return self.tasks[name]

    def start_all(self):
        for role in ("ps", "chief", "worker"):
            for index in range(len(self.cluster[role])):
                self.start(role, index)

    def limit(self, name, group):
        self.groups.append(group)
        group.add(self.tasks[name].pid)

    def report(self):
        """One report, or None while there is none."""
        done = subprocess.run(
            [
                str(BIN / "weir_cli"),
                "top",
                "--chief",
                self.cluster["chief"][0],
                "--output",
                "json",
            ],
            env={**os.environ, "WEIR_SECRET": SECRET},
            capture_output=True,
            text=True,
        )
        return json.loads(done.stdout) if done.returncode == 0 else None

    def wait_for_training(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            report = self.report()
            if report and report["phase"] == "training" and report["step"] > 5:
                return
            for name, task in self.tasks.items():
                if task.poll() is not None:
                    raise AssertionError(f"{name} ended: {self.log(name)}")
            time.sleep(0.3)
        raise AssertionError("the job does not train")

    def log(self, name):
        path = f"{self.dir}/{name.replace('/', '-')}.log"
        return pathlib.Path(path).read_text()[-2000:]

    def close(self):
        for task in self.tasks.values():
            with contextlib.suppress(ProcessLookupError):
                task.send_signal(signal.SIGKILL)
            task.wait()
        for group in self.groups:
            group.remove()
        shutil.rmtree(self.dir, ignore_errors=True)


def slow_worker(seed):
    cluster = Cluster(seed, mode=("sync", "async")[seed % 2])
    who = cluster.rng.randrange(3)
    share = cluster.rng.uniform(0.08, 0.2)
    cluster.start_all()
    cluster.wait_for_training()
    cluster.limit(f"worker/{who}", cpu_group(seed, share))
    return cluster, {("slow_worker", f"worker/{who}")}


def cpu_group(seed, share):
    quota = int(100000 * share)
    if pathlib.Path("/sys/fs/cgroup/cpu").is_dir():
        return Group("cpu", f"causes{seed}", cpu__cfs_quota_us=quota)
    return Group("cpu", f"causes{seed}", cpu__max=f"{quota} 100000")


def slow_ps(seed):
    """A ps with a small part of a processor."""
    cluster = Cluster(seed, mode=("sync", "async")[seed % 2])
    who = cluster.rng.randrange(2)
    share = cluster.rng.uniform(0.05, 0.12)
    cluster.start_all()
    cluster.wait_for_training()
    cluster.limit(f"ps/{who}", cpu_group(seed, share))
    return cluster, {("slow_ps", f"ps/{who}")}


def slow_link(seed):
    """The link of one worker to all ps, or of all workers to one ps."""
    cluster = Cluster(seed, mode=("async", "sync")[seed % 2])
    of_ps = cluster.rng.random() < 0.5
    per_byte = cluster.rng.randrange(60, 160)  # ns: 6 to 16 MB/s
    who = cluster.rng.randrange(2 if of_ps else 3)
    ports = [address.split(":")[1] for address in cluster.cluster["ps"]]
    slow = {
        "LD_PRELOAD": str(LINK),
        "WEIR_TEST_LINK_NS_PER_BYTE": str(per_byte),
    }
    for w in range(3):
        name = f"worker/{w}"
        cluster.flags[name] = ["--transport", "grpc"]
        if of_ps:
            cluster.environment[name] = {
                **slow,
                "WEIR_TEST_LINK_PORTS": ports[who],
            }
        elif w == who:
            cluster.environment[name] = {
                **slow,
                "WEIR_TEST_LINK_PORTS": ",".join(ports),
            }
    cluster.start_all()
    cluster.wait_for_training()
    return cluster, {("slow_link", f"{'ps' if of_ps else 'worker'}/{who}")}


def slow_data(seed):
    """Batches of one worker, or of all, take long to make."""
    cluster = Cluster(seed, mode=("sync", "async")[seed % 2])
    one = cluster.rng.random() < 0.6
    who = cluster.rng.randrange(3)
    sleep = cluster.rng.randrange(150, 400)
    for w in range(3):
        if not one or w == who:
            cluster.environment[f"worker/{w}"] = {
                "WEIR_FAILPOINT": f"worker.before_batch:{sleep}ms"
            }
    cluster.start_all()
    cluster.wait_for_training()
    return cluster, {("slow_data", f"worker/{who}" if one else "")}


def small_model(seed):
    cluster = Cluster(
        seed, mode=("sync", "async")[seed % 2], units=8, batch=4, workers=1
    )
    cluster.flags["worker/0"] = ["--transport", "grpc"]
    cluster.start_all()
    cluster.wait_for_training()
    return cluster, {("small_model", "")}


def checkpoints(seed):
    every = random.Random(seed).randrange(1, 4)
    cluster = Cluster(
        seed,
        mode="async",
        more=f"checkpoint {{ every_steps: {every} keep: 2 }}",
    )
    for index in range(2):
        cluster.environment[f"ps/{index}"] = {
            "WEIR_FAILPOINT": "ps.before_write:5ms"
        }
    cluster.environment["chief/0"] = {
        "WEIR_FAILPOINT": "chief.before_snapshot:150ms"
    }
    cluster.start_all()
    cluster.wait_for_training()
    return cluster, {("checkpoints", "")}


def memory(seed):
    """A task whose group gets less memory than it uses, beside a swap file."""
    cluster = Cluster(
        seed, mode=("sync", "async")[seed % 2], units=1536, batch=32
    )
    role = cluster.rng.choice(["ps", "worker"])
    who = cluster.rng.randrange(2)
    name = f"{role}/{who}"
    group = Group("memory", f"causes{seed}")
    # From its start: what it had before is not of the group.
    cluster.starts_in[name] = group
    cluster.groups.append(group)
    cluster.start_all()
    cluster.wait_for_training()
    first = group.path / "memory.usage_in_bytes"
    usage = first if first.exists() else group.path / "memory.current"
    limit = "memory.limit_in_bytes" if first.exists() else "memory.max"
    used = int(usage.read_text())
    least = used * cluster.rng.uniform(0.5, 0.7)
    for share in (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5):
        # The kernel may need some tries to write so much to the swap file.
        if used * share >= least:
            with contextlib.suppress(OSError):
                (group.path / limit).write_text(str(int(used * share)))
    return cluster, {("memory", name)}


@contextlib.contextmanager
def swap_file():
    """Memory that is short can only go to a swap file; there may be none."""
    if len(pathlib.Path("/proc/swaps").read_text().splitlines()) > 1:
        yield
        return
    path = tempfile.mkstemp(prefix="causes_swap")[1]
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={path}", "bs=1M", "count=512"],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    os.chmod(path, 0o600)
    for command in ("mkswap", "swapon"):
        subprocess.run([command, path], check=True, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        subprocess.run(["swapoff", path], check=False)
        os.unlink(path)


def gpu_input(seed):
    """Workers on the emulated GPU whose batches come late."""
    cluster = Cluster(seed, mode="async", workers=2, units=32, batch=16)
    sleep = cluster.rng.randrange(150, 400)
    for w in range(2):
        name = f"worker/{w}"
        cluster.flags[name] = [
            "--device",
            "cuda",
            "--device_plugin",
            str(GPU),
        ]
        cluster.environment[name] = {
            "WEIR_FAILPOINT": f"worker.before_batch:{sleep}ms"
        }
    cluster.start_all()
    cluster.wait_for_training()
    return cluster, {("gpu_input", "")}


def undisturbed(seed):
    cluster = Cluster(seed, mode=("sync", "async")[seed % 2])
    cluster.start_all()
    cluster.wait_for_training()
    return cluster, {("compute", ""), ("processors", "")}


CAUSES = [
    slow_worker,
    slow_ps,
    slow_link,
    slow_data,
    small_model,
    checkpoints,
    memory,
    gpu_input,
]


def run(cause, seed):
    """Whether the report named the right cause; prints what it named."""
    try:
        cluster, expected = cause(seed)
        time.sleep(SETTLE_SECONDS)
        named = []
        for _ in range(REPORTS):
            report = cluster.report()
            if report:
                named.append(report["cause"])
            time.sleep(1.0)
        assert named, "no report: " + cluster.log("chief/0")
        votes = collections.Counter((c["kind"], c["task"]) for c in named)
        (kind, task), _ = votes.most_common(1)[0]
        right = (kind, task) in expected
        if cause is undisturbed:
            # No report may name a task, not only most of them.
            right = right and all(not c["task"] for c in named)
        print(
            "right" if right else "WRONG",
            cause.__name__,
            f"seed {seed}: expected {sorted(expected)[0]},",
            f"said {dict(votes)}: {named[-1]['sentence']}",
            flush=True,
        )
        if not right and os.environ.get("WEIR_CAUSES_DUMP"):
            print(json.dumps(report, indent=1), flush=True)
        return right
    finally:
        while Cluster.running:
            Cluster.running.pop().close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", help="one cause, or undisturbed")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10000)
    options = parser.parse_args()
    runs = int(os.environ.get("WEIR_CAUSES_RUNS", "5"))
    with swap_file():
        return run_all(options, runs)


def run_all(options, runs):
    named = 0
    wanted = [c for c in CAUSES if options.only in (None, c.__name__)]
    for cause in wanted:
        for i in range(runs):
            named += run(cause, options.seed + i)
    quiet = 0
    quiet_runs = 2 * runs if options.only in (None, "undisturbed") else 0
    for i in range(quiet_runs):
        quiet += run(undisturbed, options.seed + i)
    all_runs = runs * len(wanted)
    print(
        f"{named} of {all_runs} disturbed jobs, "
        f"{quiet} of {quiet_runs} undisturbed ones"
    )
    return 0 if named >= int(0.9 * all_runs) and quiet == quiet_runs else 1


if __name__ == "__main__":
    sys.exit(main())
