"""Runs the pods of a rendered manifest, and stands in for the Job controller.

`Jobs` reads what `weir render k8s` prints and expands its Indexed Jobs to pods.
A host runs them:

  PodmanHost   as real containers of Weir's image, each pod with an address of
               its own on a bridge, and names that its DNS answers
  ProcessHost  as processes of this machine, where podman cannot run. Names
               become ports of the loopback interface; users, read-only roots
               and other limits of a container are not tried.

What a kubelet and the Job controller would do with a pod that ends is in
`Controller`. Nothing waits by sleeping: each wait has a condition and an end.
"""

import contextlib
import copy
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import yaml

from free_ports import free_port

INDEX = "batch.kubernetes.io/job-completion-index"
USER = 10001
DEADLINE_S = 120


def wait_until(condition, what: str, seconds: float = DEADLINE_S) -> None:
    """Polls until `condition()` holds; names `what` if it never does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds} s: not {what}")
        time.sleep(0.02)


@dataclasses.dataclass(frozen=True)
class Pod:
    """One pod of an Indexed Job."""

    job: str  # the Job's name
    role: str
    index: int
    spec: dict = dataclasses.field(compare=False, hash=False)
    labels: dict = dataclasses.field(compare=False, hash=False)
    namespace: str = "default"

    @property
    def name(self) -> str:
        """The pod's name, which is its host's name, too."""
        return f"{self.job}-{self.index}"

    @property
    def container(self) -> dict:
        """Its one container."""
        return self.spec["containers"][0]

    def full_names(self) -> list[str]:
        """The names under which others reach it."""
        short = f"{self.name}.{self.spec['subdomain']}"
        long = f"{short}.{self.namespace}.svc"
        return [self.name, short, long, f"{long}.cluster.local"]


class Jobs:
    """The Jobs of a manifest, and the volumes that their pods mount."""

    def __init__(self, text: str):
        """Parses `text`, YAML of several documents."""
        self.documents = [d for d in yaml.safe_load_all(text) if d]
        self.pods: list[Pod] = []
        for document in self.documents:
            if document["kind"] == "Job":
                self.pods += list(self._expand(document))

    @staticmethod
    def _expand(document: dict):
        template = document["spec"]["template"]
        labels = template["metadata"]["labels"]
        for index in range(document["spec"]["completions"]):
            yield Pod(
                job=document["metadata"]["name"],
                role=labels["app.kubernetes.io/component"],
                index=index,
                spec=copy.deepcopy(template["spec"]),
                labels=labels,
                namespace=document["metadata"].get("namespace", "default"),
            )

    def config_map(self, name: str) -> dict:
        """The data of a ConfigMap."""
        for document in self.documents:
            if (
                document["kind"] == "ConfigMap"
                and document["metadata"]["name"] == name
            ):
                return document["data"]
        raise KeyError(name)

    def failure_rules(self, job: str) -> list[dict]:
        """The rules of a Job's podFailurePolicy."""
        for document in self.documents:
            if (
                document["kind"] == "Job"
                and document["metadata"]["name"] == job
            ):
                return document["spec"]["podFailurePolicy"]["rules"]
        raise KeyError(job)

    def of_role(self, role: str) -> list[Pod]:
        """The pods of one role, by index."""
        return [pod for pod in self.pods if pod.role == role]


class Volumes:
    """The volumes of a manifest, as folders of this machine."""

    def __init__(
        self, folder: pathlib.Path, jobs: Jobs, secrets: dict[str, dict]
    ):
        """Each Secret has the text of its keys."""
        self.folder = folder
        self._jobs = jobs
        self._secrets = secrets
        self.run = self._make("claim", 0o700)

    def _make(self, name: str, mode: int) -> pathlib.Path:
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        os.chmod(path, mode)
        if os.getuid() == 0:
            os.chown(path, USER, USER)
        return path

    def _write(self, folder: pathlib.Path, name: str, text: str) -> None:
        path = folder / name
        path.write_text(text)
        os.chmod(path, 0o440)
        if os.getuid() == 0:
            os.chown(path, 0, USER)

    def path_of(self, volume: dict, pod: Pod) -> pathlib.Path:
        """The folder that stands for `volume` in `pod`."""
        if "persistentVolumeClaim" in volume:
            return self.run
        if "configMap" in volume:
            name = volume["configMap"]["name"]
            path = self._make(f"config-{name}", 0o755)
            for key, text in self._jobs.config_map(name).items():
                if not (path / key).exists():
                    self._write(path, key, text)
            return path
        if "secret" in volume:
            name = volume["secret"]["secretName"]
            path = self._make(f"secret-{name}", 0o750)
            secret = self._secrets[name]
            chosen = volume["secret"].get("items", [])
            for key in [entry["key"] for entry in chosen] or secret:
                if not (path / key).exists():
                    self._write(path, key, secret[key])
            return path
        return self._make(f"{pod.name}-{volume['name']}", 0o700)


class ProcessHost:
    """Runs pods as processes, on ports of the loopback interface."""

    def __init__(self, bin_dir: str, volumes: Volumes):
        """Runs programs of `bin_dir`."""
        self._bin_dir = bin_dir
        self._volumes = volumes
        self._ports: dict[str, int] = {}
        self._processes: dict[Pod, subprocess.Popen] = {}

    def _local(self, text: str, mounts: dict[str, str]) -> str:
        for mount, path in sorted(mounts.items(), reverse=True):
            text = text.replace(mount, path)
        return text

    def _address(self, word: str) -> str:
        host = word.rsplit(":", 1)[0]
        if host not in self._ports:
            self._ports[host] = free_port()
        return f"127.0.0.1:{self._ports[host]}"

    def _cluster(self, text: str) -> str:
        roles = []
        for role in text.split(";"):
            name, addresses = role.split("=")
            local = ",".join(map(self._address, addresses.split(",")))
            roles.append(f"{name}={local}")
        return ";".join(roles)

    def _environment(self, pod: Pod, mounts: dict[str, str]) -> dict:
        environment = {
            "PATH": os.environ["PATH"],
            "WEIR_BIN_DIR": self._bin_dir,
            "JOB_COMPLETION_INDEX": str(pod.index),
            "TMPDIR": str(self._volumes.folder),
        }
        for entry in pod.container.get("env", []):
            value = entry.get("value", str(pod.index))
            if entry["name"] == "WEIR_CLUSTER":
                value = self._cluster(value)
            environment[entry["name"]] = self._local(value, mounts)
        return environment

    def _mounts(self, pod: Pod) -> dict[str, str]:
        volumes = {v["name"]: v for v in pod.spec["volumes"]}
        return {
            mount["mountPath"]: str(
                self._volumes.path_of(volumes[mount["name"]], pod)
            )
            for mount in pod.container["volumeMounts"]
        }

    def _weir(self) -> str:
        return f"{self._bin_dir}/deploy/cli/weir_cli"

    def start(self, pod: Pod) -> None:
        """Starts a pod that does not run."""
        mounts = self._mounts(pod)
        with open(self._volumes.folder / f"{pod.name}.log", "ab") as log:
            self._processes[pod] = subprocess.Popen(
                [self._weir()]
                + [self._local(a, mounts) for a in pod.container["args"]],
                env=self._environment(pod, mounts),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def main_pid(self, pod: Pod) -> int:
        """The process that a kubelet would signal; 0 if it has ended."""
        process = self._processes[pod]
        return process.pid if process.poll() is None else 0

    def ended(self, pod: Pod) -> int | None:
        """The exit code; None while it runs."""
        code = self._processes[pod].poll()
        return 128 - code if code is not None and code < 0 else code

    def probe(self, pod: Pod) -> bool:
        """What the kubelet's exec probe would say."""
        mounts = self._mounts(pod)
        return (
            subprocess.run(
                [self._weir(), "probe"],
                env=self._environment(pod, mounts),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            ).returncode
            == 0
        )

    def remove(self, pod: Pod) -> None:
        """Forgets a pod that has ended."""
        self._processes.pop(pod)

    def log(self, pod: Pod) -> str:
        """What it has printed."""
        return (self._volumes.folder / f"{pod.name}.log").read_text()

    def close(self) -> None:
        """Kills what still runs."""
        for process in self._processes.values():
            process.kill()
            process.wait()


def podman_missing() -> str:
    """Why podman cannot run here; empty if it can."""
    if os.getuid() != 0:
        return "podman needs root here"
    for program in "podman", "runc":
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return ""


def podman_environment(folder: pathlib.Path) -> dict[str, str]:
    """The variables with which podman runs here; writes a file to `folder`."""
    # podman's default limits fail without CAP_SYS_RESOURCE, and crun refuses
    # hybrid control groups.
    path = folder / "containers.conf"
    path.write_text(
        "[containers]\n"
        'default_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]\n'
        '[engine]\nruntime = "runc"\n'
        '[network]\nnetwork_backend = "netavark"\n'
    )
    return dict(os.environ, CONTAINERS_CONF=str(path))


def program_below(main: int, what: str) -> int:
    """The program that the `weir task` of process `main` runs."""
    found: list[str] = []

    def find():
        with open(f"/proc/{main}/task/{main}/children") as children:
            found[:] = children.read().split()
        return bool(found)

    wait_until(find, f"a program below the task of {what}")
    return int(found[0])


class PodmanHost:
    """Runs pods as containers."""

    def __init__(self, archive: str, volumes: Volumes):
        """Loads the image `archive` and makes a network."""
        self._volumes = volumes
        self._network = f"weir-test-{os.getpid()}-{id(self) % 10007}"
        self._play_count: dict[Pod, int] = {}
        self._environment = podman_environment(volumes.folder)
        self._run("load", "-i", archive)
        self._run("network", "create", self._network)

    def _run(self, *words: str, text: str | None = None) -> str:
        # In a folder of its own: podman takes a folder of the image's name for
        # a place to build it.
        done = subprocess.run(
            ["podman", *words],
            input=text,
            capture_output=True,
            text=True,
            env=self._environment,
            cwd=self._volumes.folder,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"podman {' '.join(words)}: {done.stderr}")
        return done.stdout.strip()

    def _play_name(self, pod: Pod) -> str:
        return f"{self._network}-{pod.name}"

    def _container(self, pod: Pod) -> str:
        return f"{self._play_name(pod)}-{pod.container['name']}"

    def _document(self, pod: Pod) -> dict:
        spec = copy.deepcopy(pod.spec)
        spec["hostname"] = pod.name
        spec["volumes"] = [
            {
                "name": volume["name"],
                "hostPath": {
                    "path": str(self._volumes.path_of(volume, pod)),
                    "type": "Directory",
                },
            }
            for volume in spec["volumes"]
        ]
        for container in spec["containers"]:
            # podman publishes ports on the host, and needs systemd for probes.
            for name in "ports", "readinessProbe":
                container.pop(name, None)
            container["env"].append(
                {"name": "JOB_COMPLETION_INDEX", "value": str(pod.index)}
            )
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self._play_name(pod),
                "labels": pod.labels,
                "annotations": {INDEX: str(pod.index)},
            },
            "spec": spec,
        }

    def start(self, pod: Pod) -> None:
        """Starts a pod that does not run, with a new address."""
        aliases = ",".join(f"alias={name}" for name in pod.full_names())
        self._run(
            "kube",
            "play",
            "--network",
            f"{self._network}:{aliases}",
            "-",
            text=yaml.safe_dump(self._document(pod)),
        )
        self._play_count[pod] = self._play_count.get(pod, 0) + 1

    def _state(self, pod: Pod) -> dict:
        words = "inspect", "--format", "{{json .State}}", self._container(pod)
        try:
            return json.loads(self._run(*words))
        except AssertionError as error:
            # podman reads /proc of a process that may have just ended; then
            # it knows of the end when it is asked again.
            if "no such process" not in str(error):
                raise
            return json.loads(self._run(*words))

    def main_pid(self, pod: Pod) -> int:
        """The container's first process; 0 if it has ended."""
        return int(self._state(pod)["Pid"])

    def ended(self, pod: Pod) -> int | None:
        """The exit code; None while it runs."""
        state = self._state(pod)
        return None if state["Status"] == "running" else state["ExitCode"]

    def probe(self, pod: Pod) -> bool:
        """What the kubelet's exec probe would say."""
        command = pod.container["readinessProbe"]["exec"]["command"]
        try:
            self._run("exec", self._container(pod), *command)
        except AssertionError:
            return False
        return True

    def remove(self, pod: Pod) -> None:
        """Removes a pod that has ended; keeps its log."""
        with open(self._volumes.folder / f"{pod.name}.log", "a") as log:
            log.write(self._log_now(pod))
        self._run("pod", "rm", "-f", self._play_name(pod))
        del self._play_count[pod]

    def _log_now(self, pod: Pod) -> str:
        done = subprocess.run(
            ["podman", "logs", self._container(pod)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
            check=False,
        )
        return done.stdout

    def log(self, pod: Pod) -> str:
        """What it has printed, also before it was replaced."""
        path = self._volumes.folder / f"{pod.name}.log"
        before = path.read_text() if path.exists() else ""
        return before + (self._log_now(pod) if pod in self._play_count else "")

    def close(self) -> None:
        """Removes all pods and the network."""
        for pod in list(self._play_count):
            self._run("pod", "rm", "-f", "-t", "0", self._play_name(pod))
        self._run("network", "rm", "-f", self._network)


class Controller:
    """What the kubelets and the Job controller do with pods that end."""

    def __init__(self, host, jobs: Jobs):
        """Runs the pods of `jobs` on `host`."""
        self.host = host
        self.jobs = jobs
        self.codes: dict[Pod, list[int]] = {pod: [] for pod in jobs.pods}
        self.failed: str | None = None  # why the whole job failed
        self._disrupted: set[Pod] = set()

    def start(self, pods: list[Pod] | None = None) -> None:
        """Starts pods, in the order of the list."""
        for pod in pods or self.jobs.pods:
            self.host.start(pod)

    def kill_program(self, pod: Pod) -> None:
        """As a crash does."""
        main = self.host.main_pid(pod)
        os.kill(program_below(main, pod.name), signal.SIGKILL)

    def evict(self, pods: list[Pod]) -> None:
        """SIGTERM, as at the end of a pod; it has the manifest's grace."""
        self._disrupted.update(pods)
        for pod in pods:
            # 0 is that of a container that has ended, and of our own group.
            if main := self.host.main_pid(pod):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(main, signal.SIGTERM)
        for pod in pods:
            grace = pod.spec["terminationGracePeriodSeconds"]
            wait_until(
                lambda pod=pod: self.host.ended(pod) is not None,
                f"ended: {pod.name}",
                grace,
            )

    def _action(self, pod: Pod, code: int) -> str:
        for rule in self.jobs.failure_rules(pod.job):
            if rule.get("onPodConditions") and pod in self._disrupted:
                return rule["action"]
            if code in rule.get("onExitCodes", {}).get("values", []):
                return rule["action"]
        return "Count"

    def look(self) -> None:
        """Replaces the pods that ended and that the Jobs want again."""
        for pod in self.jobs.pods:
            if self.done(pod) or self.failed:
                continue
            code = self.host.ended(pod)
            if code is None:
                continue
            self.codes[pod].append(code)
            if code == 0:
                continue
            if self._action(pod, code) == "FailJob":
                self.failed = f"{pod.name} ended with {code}"
                continue
            self._disrupted.discard(pod)
            self.host.remove(pod)
            self.host.start(pod)

    def done(self, pod: Pod) -> bool:
        """Whether the index of this pod is complete."""
        return self.codes[pod][-1:] == [0]

    def run_to_end(self) -> None:
        """Until the job is done, or has failed."""

        def ended():
            self.look()
            return self.failed or all(map(self.done, self.jobs.pods))

        wait_until(ended, "done")
