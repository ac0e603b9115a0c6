"""A real Slurm of four nodes on one host.

`enter_host_of_its_own` moves the test below `unshare`: its mounts, its network
and its processes are its own, so that the machine keeps its /etc/hosts and its
ports, and nothing outlives the test. There each node is a network namespace
with an address and a name, and has a slurmd.

Nothing waits by sleeping: each wait has a condition and an end.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

NODES = ["n0", "n1", "n2", "n3"]
CONTROLLER = "10.77.0.254"
DEADLINE_S = 120
INSIDE = "WEIR_SLURM_INSIDE"  # the host's folder: set below `unshare`

CONFIGURATION = """
ClusterName=weir
SlurmctldHost={host}({controller})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldParameters=cloud_dns
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=30
NodeName=DEFAULT CPUs=4 RealMemory=16000 State=UNKNOWN
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def wait_until(condition, what: str, seconds: float = DEADLINE_S) -> None:
    """Polls until `condition()` holds; names `what` if it never does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds} s: not {what}")
        time.sleep(0.05)


def why_not() -> str:
    """Why Slurm cannot run here; empty if it can."""
    if os.getuid() != 0:
        return "a Slurm of four nodes needs root here"
    for program in [
        "munged",
        "slurmctld",
        "slurmd",
        "sbatch",
        "srun",
        "scontrol",
    ] + ["squeue", "scancel", "ip", "nsenter", "unshare"]:
        if shutil.which(program) is None:
            return f"{program} is not installed"
    unshared = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return unshared.stderr.strip() if unshared.returncode != 0 else ""


def enter_host_of_its_own() -> None:
    """Replaces this process by the same one below `unshare`, once."""
    if INSIDE in os.environ:
        return
    words = ["--mount", "--net", "--pid", "--fork", "--kill-child"]
    os.environ[INSIDE] = "1"
    os.execvp(
        "unshare",
        ["unshare", *words, "--mount-proc", sys.executable, *sys.argv],
    )


def run(*words: str, text: str | None = None) -> str:
    """Runs a command that has to end well; returns what it printed."""
    done = subprocess.run(
        words, input=text, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: {done.stderr}")
    return done.stdout.strip()


class Process:
    """A process of the tasks, as /proc shows it."""

    def __init__(self, pid: int):
        """Reads /proc/`pid`; FileNotFoundError if it has ended."""
        self.pid = pid
        path = pathlib.Path(f"/proc/{pid}")
        self.words = path.joinpath("cmdline").read_bytes().split(b"\0")
        stat = path.joinpath("stat").read_text()
        self.parent = int(stat.rsplit(")", 1)[1].split()[1])

    @staticmethod
    def of_program(name: str) -> list["Process"]:
        """Those that run a program of this name."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                process = Process(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
            if os.path.basename(process.words[0].decode()) == name:
                found.append(process)
        return found


class Slurm:
    """munged, slurmctld and four slurmd; a context that ends them.

    REQUIRES: enter_host_of_its_own().
    """

    def __init__(self, folder: pathlib.Path, path: str):
        """Keeps all files in `folder`; jobs find programs by `path`."""
        self.folder = folder
        self.environment = dict(
            os.environ,
            PATH=f"{path}:{os.environ['PATH']}",
            SLURM_CONF=str(folder / "slurm.conf"),
        )
        self._daemons: list[tuple[str, subprocess.Popen]] = []

    def _name_hosts(self) -> None:
        hosts = ["127.0.0.1 localhost", f"{CONTROLLER} {socket.gethostname()}"]
        hosts += [f"10.77.0.{i + 1} {name}" for i, name in enumerate(NODES)]
        path = self.folder / "hosts"
        path.write_text("\n".join(hosts) + "\n")
        run("mount", "--bind", str(path), "/etc/hosts")

    def _make_network(self) -> None:
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "bridge0", "type", "bridge")
        run("ip", "addr", "add", f"{CONTROLLER}/24", "dev", "bridge0")
        run("ip", "link", "set", "bridge0", "up")
        for i, name in enumerate(NODES):
            run("ip", "netns", "add", name)
            peer = ["peer", "name", "eth0", "netns", name]
            run("ip", "link", "add", name, "type", "veth", *peer)
            run("ip", "link", "set", name, "master", "bridge0", "up")
            inside = ["ip", "-n", name]
            run(*inside, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            run(*inside, "link", "set", "eth0", "up")
            run(*inside, "link", "set", "lo", "up")

    def _write_configuration(self) -> None:
        (self.folder / "state").mkdir()
        for name in NODES:
            (self.folder / f"spool-{name}").mkdir()
        nodes = [
            f"NodeName={name} NodeHostname={name} NodeAddr=10.77.0.{i + 1}"
            for i, name in enumerate(NODES)
        ]
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                host=socket.gethostname(),
                controller=CONTROLLER,
                folder=self.folder,
                nodes="\n".join(nodes),
            )
        )
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)

    def _start(self, name: str, *words: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            daemon = subprocess.Popen(
                words,
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._daemons.append((name, daemon))

    def __enter__(self):
        """Starts the daemons, and waits until all nodes are idle."""
        self._name_hosts()
        self._make_network()
        self._write_configuration()
        files = {"key-file": "munge.key", "socket": "munge.socket"}
        files |= {"pid-file": "munged.pid", "seed-file": "munge.seed"}
        files |= {"log-file": "munged.messages"}
        flags = [f"--{k}={self.folder}/{v}" for k, v in files.items()]
        self._start("munged", "munged", "--foreground", "--force", *flags)
        wait_until((self.folder / "munge.socket").exists, "munged's socket")
        self._start("slurmctld", "slurmctld", "-D")
        for name in NODES:
            # A name of its own, too: tasks of one host share memory.
            self._start(
                name,
                "nsenter",
                f"--net=/run/netns/{name}",
                "unshare",
                "--uts",
                "sh",
                "-c",
                f"hostname {name} && exec slurmd -D -N {name}",
            )
        wait_until(self._is_idle, "four idle nodes", 30)
        return self

    def __exit__(self, kind, *_):
        """Ends all jobs and all daemons, and shows the logs of a failure."""
        for job in self._query("squeue", "-h", "-o", "%i").split():
            self._query("scancel", job)
            self._query("scancel", "-s", "KILL", job)
        for name, daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
            if kind is not None:
                log = (self.folder / f"{name}.log").read_text()
                print(f"--- {name}\n" + "\n".join(log.splitlines()[-15:]))

    def _query(self, *words: str) -> str:
        done = subprocess.run(
            words,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip()

    def _is_idle(self) -> bool:
        states = self._query("sinfo", "-h", "-N", "-o", "%T").split()
        return states == ["idle"] * len(NODES)

    def submit(self, script: str, folder: pathlib.Path, *flags: str) -> str:
        """sbatch in `folder`; returns the job's number."""
        done = subprocess.run(
            ["sbatch", "--parsable", "--output=slurm.out", *flags],
            input=script,
            env=self.environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return done.stdout.strip()

    def control(self, *words: str) -> None:
        """scontrol, which has to end well."""
        done = subprocess.run(
            ["scontrol", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(done.stderr)

    def job(self, number: str) -> dict[str, str]:
        """What Slurm says about a job."""
        words = self._query("scontrol", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def cancel(self, number: str) -> None:
        """Ends a job for good, as its user does."""
        self._query("scancel", number)

    def requeue(self, number: str) -> None:
        """Requeues a running job, and has it start again at once."""
        self.control("requeue", number)
        wait_until(
            lambda: self.job(number).get("JobState") == "PENDING",
            f"pending: job {number}",
        )
        # Slurm would let it wait for two minutes.
        self.control("update", f"job={number}", "StartTime=now")

    def wait_for_end(self, number: str) -> dict[str, str]:
        """Waits for the job's end; returns what Slurm says about it."""
        running = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", None)
        wait_until(
            lambda: self.job(number).get("JobState") not in running,
            f"ended: job {number}",
        )
        return self.job(number)
