"""Jobs that a real Prometheus scrapes: metrics, the dashboard, the alerts.

Needs the programs of Debian's package prometheus, which `./weir test --full`
installs (deploy/prometheus_packages.txt). WEIR_BIN_DIR has Weir's programs. All
times of the alerts are shortened to a sixtieth, and a task is scraped every
second.
"""

import contextlib
import json
import math
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/monitoring"
sys.path[:0] = [str(FOLDER), str(ROOT / "tests/support")]

import alerts_table  # noqa: E402
import monitoring  # noqa: E402

from free_ports import free_port  # noqa: E402

BIN = pathlib.Path(os.environ.get("WEIR_BIN_DIR", ".")).resolve()
SECRET = "the secret of the tests, which is long enough"
SCALE = 1 / 60
DEADLINE_S = 90
QUIET_S = 15  # for as long nothing may fire
HANGING_SCRAPERS = 4  # of each task, more every second

JOB = """
name: "digits" seed: 3
model {{
  layer {{ name: "flat" flatten {{}} }}
  layer {{ name: "hidden" dense {{ units: 32 }} }}
  layer {{ name: "relu" relu {{}} }}
  layer {{ name: "logits" dense {{ units: 10 }} }}
  loss {{ softmax_cross_entropy {{}} }}
}}
data {{ train {{ digits {{ count: 2000 }} }} }}
evaluation {{ source {{ digits {{ count: 200 stream: 1 }} }} }}
train {{ batch_size: 16 steps: {steps} log_every_steps: 20 }}
optimizer {{ sgd {{}} }}
schedule {{ learning_rate: 0.01 }}
update {{ {mode} {{}} }}
checkpoint {{ every_seconds: 3 keep: 2 }}
"""


def get(url: str) -> bytes:
    """What a server answers."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


def hanging_scraper(port: int) -> socket.socket:
    """Has asked for the metrics."""
    one = socket.socket()
    # Smaller than a page, so that the rest of it must wait.
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    one.settimeout(1)
    try:
        one.connect(("127.0.0.1", port))
        one.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
    except OSError:
        one.close()
        raise
    return one


def promtool(*words: str, text: bytes | None = None) -> tuple[int, str]:
    """The code and the output of promtool."""
    done = subprocess.run(
        ["promtool", *words],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=DEADLINE_S,
        check=False,
    )
    return done.returncode, done.stdout.decode()


class Processes(contextlib.ExitStack):
    """Processes in one folder, which end with it."""

    def __init__(self):
        super().__init__()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir_prometheus_"))
        self.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.running: dict[str, subprocess.Popen] = {}

    def start(self, name: str, words: list, **environment: str) -> None:
        """Starts a program; what it writes goes to a file."""
        with open(self.log(name), "wb") as log:
            process = subprocess.Popen(
                [str(word) for word in words],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
            )
        self.running[name] = process
        self.callback(process.wait)
        self.callback(process.kill)

    def log(self, name: str) -> pathlib.Path:
        """Where a process writes to."""
        return self.folder / f"{name.replace('/', '-')}.log"

    def all_logs(self) -> str:
        """The end of every file."""
        return "\n".join(
            f"--- {name}\n{self.log(name).read_text()[-1500:]}"
            for name in self.running
        )


class Scene(Processes):
    """A job of 2 ps, 2 workers, chief and evaluator, and its Prometheus."""

    def __init__(self, mode: str, failpoints: dict[str, str], steps: int):
        super().__init__()
        job = self.folder / "job.textproto"
        job.write_text(JOB.format(mode=mode, steps=steps))
        cluster = {
            role: [f"127.0.0.1:{free_port()}" for _ in range(count)]
            for role, count in (("ps", 2), ("chief", 1), ("worker", 2))
        }
        self.ports: dict[str, int] = {}
        for role, index in [
            *[("ps", 0), ("ps", 1), ("chief", 0)],
            *[("worker", 0), ("worker", 1), ("evaluator", 0)],
        ]:
            name = f"{role}/{index}"
            port = self.ports[name] = free_port()
            words = [BIN / f"weir_{role}", "--admin_address", "127.0.0.1"]
            words += ["--admin_port", port]
            if role == "ps":
                words += ["--checkpoint_root", self.folder / "checkpoints"]
            else:
                words += ["--job", job, "--workdir", self.folder]
            environment = {"WEIR_SECRET": SECRET}
            if role != "evaluator":
                task = {"type": role, "index": index}
                environment["TF_CONFIG"] = json.dumps(
                    {"cluster": cluster, "task": task}
                )
            if name in failpoints:
                environment["WEIR_FAILPOINT"] = failpoints[name]
            self.start(name, words, **environment)
        self.port = free_port()
        self.start_prometheus()

    def start_prometheus(self) -> None:
        """One that scrapes every task, with the rules."""
        rules = self.folder / "alerts.yaml"
        rules.write_text(monitoring.alerts(SCALE))
        config = self.folder / "prometheus.json"  # JSON is YAML
        self.name_targets(*self.ports)
        config.write_text(
            json.dumps(
                {
                    "global": {
                        "scrape_interval": "1s",
                        "scrape_timeout": "1s",
                        "evaluation_interval": "1s",
                    },
                    "rule_files": [str(rules)],
                    "scrape_configs": [
                        {
                            "job_name": "digits",
                            "file_sd_configs": [
                                {"files": [str(self.targets())]}
                            ],
                        }
                    ],
                }
            )
        )
        self.start(
            "prometheus",
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={self.folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
        )

    def targets(self) -> pathlib.Path:
        """The file that names what Prometheus scrapes; it watches it."""
        return self.folder / "targets.json"

    def name_targets(self, *names: str) -> None:
        """These tasks are scraped from now on."""
        targets = [f"127.0.0.1:{self.ports[name]}" for name in names]
        new = self.folder / "new.json"
        new.write_text(json.dumps([{"targets": targets}]))
        new.replace(self.targets())

    def ask(self, path: str, **query: str):
        """What Prometheus's API answers."""
        text = get(
            f"http://127.0.0.1:{self.port}/api/v1/{path}?"
            + urllib.parse.urlencode(query)
        )
        return json.loads(text)["data"]

    def values(self, expression: str) -> list[float]:
        """The numbers of an expression now, without those that are none."""
        data = self.ask("query", query=expression)
        assert data["resultType"] == "vector", expression
        numbers = [float(one["value"][1]) for one in data["result"]]
        return [number for number in numbers if math.isfinite(number)]

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        return {
            alert["labels"]["alertname"]
            for alert in self.ask("alerts")["alerts"]
            if alert["state"] == "firing"
        }

    def wait(self, what: str, condition) -> None:
        """Until a condition holds; says what was missing if it never does."""
        end = time.monotonic() + DEADLINE_S
        missing: object = None
        while time.monotonic() < end:
            try:
                missing = condition()
            except OSError as error:  # Prometheus is not up yet
                missing = error
            if not missing:
                return
            time.sleep(0.2)
        raise AssertionError(f"{what}: {missing}\n{self.all_logs()}")

    def wait_for_training(self) -> None:
        """Until the job trains and every task has been scraped."""
        wanted = (
            "weir_job_step > 20 and on (job) "
            'weir_job_phase{phase="training"} == 1 '
            "and on (job) sum by (job) (up) == 6"
        )
        self.wait("training", lambda: not self.values(wanted))

    def check_only(self, expected: set[str]) -> None:
        """Waits until these alerts fire, and sees that no other one does."""

        def missing():
            now = self.firing()
            assert now <= expected, f"{now - expected}\n{self.all_logs()}"
            return expected - now

        self.wait("alerts that do not fire", missing)
        self.stays(expected)

    def stays(self, expected: set[str]) -> None:
        """Sees that the same alerts fire for a while."""
        end = time.monotonic() + QUIET_S
        while time.monotonic() < end:
            assert self.firing() == expected, f"{self.firing()}"
            time.sleep(0.2)


def dashboard_expressions() -> list[str]:
    """Of every panel, with values for the variables."""
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    return [
        target["expr"]
        .replace("$__rate_interval", "10s")
        .replace("$job", "digits")
        .replace("$worker", ".*")
        for panel in panels
        for target in panel.get("targets", [])
    ]


@unittest.skipUnless(
    shutil.which("prometheus") and shutil.which("promtool"),
    "no prometheus: ./weir test --full installs it",
)
class PrometheusTest(unittest.TestCase):
    """One job in each test, but for those of promtool alone."""

    def scene(self, mode: str, steps=10**8, **failpoints: str) -> Scene:
        """A job that trains, whose tasks have failpoints."""
        names = {key.replace("_", "/"): at for key, at in failpoints.items()}
        scene = self.enterContext(Scene(mode, names, steps))
        scene.wait_for_training()
        return scene

    def test_rules_are_valid_and_fire_when_they_should(self):
        for words in (
            ("check", "rules", str(FOLDER / "alerts.yaml")),
            ("test", "rules", str(FOLDER / "alerts_test.yaml")),
        ):
            code, output = promtool(*words)
            self.assertEqual(code, 0, output)

    def test_a_healthy_job_and_a_worker_that_is_killed(self):
        scene = self.scene("sync")
        self.check_pages(scene)
        self.check_expressions(scene)
        with self.hanging_scrapers(scene):
            scene.stays(set())
            # A busy host lets some scrapes wait for more than their second.
            (share,) = scene.values(f"min(avg_over_time(up[{QUIET_S}s]))")
            self.assertGreater(share, 0.5, scene.all_logs())
        scene.running["worker/1"].kill()
        scene.check_only({"WeirWorkerAbsent", "WeirTaskUnreachable"})

    def test_a_chief_that_is_killed_and_whose_pod_goes(self):
        scene = self.scene("async")
        scene.running["chief/0"].kill()
        scene.check_only({"WeirChiefUnreachable"})
        scene.name_targets(*(scene.ports.keys() - {"chief/0"}))
        gone = "count(up) == 5"
        scene.wait("a target less", lambda: not scene.values(gone))
        scene.stays({"WeirChiefUnreachable"})

    def test_a_job_that_ends(self):
        # 10 ms for each contribution of two workers: 15 seconds.
        slow = "worker.before_push:10ms"
        scene = self.scene("async", steps=3000, worker_0=slow, worker_1=slow)
        tasks = [scene.running[name] for name in scene.ports]
        scene.wait("the end", lambda: [t for t in tasks if t.poll() is None])
        self.assertEqual([task.returncode for task in tasks], [0] * len(tasks))
        scene.stays(set())

    def test_a_checkpoint_that_hangs(self):
        scene = self.scene("sync", ps_1="ps.before_write:60000ms")
        scene.check_only({"WeirCheckpointStuck"})

    def test_staleness_that_grows(self):
        # Of the slow one's 600 ms the other fills some 20 to 60 steps.
        scene = self.scene(
            "async",
            worker_0="worker.before_push:10ms",
            worker_1="worker.before_push:600ms",
        )
        scene.check_only({"WeirStalenessGrows"})

    def check_pages(self, scene: Scene) -> None:
        """promtool has nothing to say about any page."""
        scene.wait("evaluation", lambda: not scene.values("weir_eval_metric"))
        for name, port in scene.ports.items():
            page = get(f"http://127.0.0.1:{port}/metrics")
            code, output = promtool("check", "metrics", text=page)
            self.assertEqual((code, output), (0, ""), name)

    def check_expressions(self, scene: Scene) -> None:
        """Every panel has data, and every alert can be asked."""
        expressions = dashboard_expressions()
        self.assertGreater(len(expressions), 50)
        for expression in expressions:
            scene.wait(
                f"no data: {expression}",
                lambda expression=expression: not scene.values(expression),
            )
        for alert in alerts_table.ALERTS:
            scene.values(monitoring.scaled(alert.expression, SCALE))

    @contextlib.contextmanager
    def hanging_scrapers(self, scene: Scene):
        """Clients that ask for the metrics and read nothing, again and again.

        A task cuts each of them off after two seconds.
        """
        over = threading.Event()

        def hang():
            with contextlib.ExitStack() as sockets:
                while not over.wait(1):
                    for port in scene.ports.values():
                        for _ in range(HANGING_SCRAPERS):
                            with contextlib.suppress(OSError):
                                sockets.enter_context(hanging_scraper(port))

        thread = threading.Thread(target=hang)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


if __name__ == "__main__":
    unittest.main(verbosity=2)
