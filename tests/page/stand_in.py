"""A stand-in for the admin port of a chief: the page's files, and made reports.

It serves as the admin port does: one connection at a time, none kept alive, a
Content-Security-Policy that permits the server's own files alone.
"""

import contextlib
import http.server
import json
import math
import pathlib
import random
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "server/chief/page"
UPLOT = ROOT / "third_party/uplot"
TYPES = {
    ".css": "text/css",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
POINTS = 2000  # of a curve, at most
IDLE_S = 1  # after which a connection without a request is closed
REFUSAL = b"this page wants the link that `weir page` prints\n"
BEGAN = time.time()


def page_files() -> dict[str, pathlib.Path]:
    """The files of the page, by the address below which they are served."""
    files = {f"/{path.name}": path for path in PAGE.iterdir()}
    files = {name: path for name, path in files.items() if path.suffix in TYPES}
    files["/"] = files.pop("/page.html")
    files["/uplot.js"] = UPLOT / "uPlot.iife.min.js"
    files["/uplot.css"] = UPLOT / "uPlot.min.css"
    return files


def host_load(draw: random.Random) -> dict:
    """A HostReport."""
    return {
        "cpu_seconds_per_second": draw.uniform(1.5, 3.9),
        "processors": 4,
        "wake_late_seconds": draw.uniform(2e-5, 3e-4),
        "major_faults_per_second": 0,
        "resident_bytes": draw.uniform(0.8e9, 1.4e9),
        "memory_bytes_max": 4 << 30,
        "memory_stall_share": 0,
    }


def worker(slot: int, shards: int, slow: bool, draw: random.Random) -> dict:
    """A WorkerReport; of one that is slow, its data is."""
    data, push = draw.uniform(0.01, 0.05), draw.uniform(0.03, 0.1)
    pull = draw.uniform(0.2, 0.34)
    compute = 0.94 - data - push - pull
    if slow:
        data, pull, compute, push = 0.62, 0.04, 0.27, 0.03
    weights = [draw.uniform(0.5, 1.5) for _ in range(shards)]
    weights[-1] += 2 if shards > 1 else 0
    step = draw.gauss(0.0312, 0.0012) * (1.86 if slow else 1)
    return {
        "slot": slot,
        "host": f"node-{slot // 8:03d}.cluster",
        "state": "working",
        "heartbeat_age_seconds": draw.uniform(0, 1),
        "contributions_per_second": 1 / step,
        "examples_per_second": 128 / step,
        "step_seconds": step,
        "data_share": data,
        "pull_share": pull,
        "compute_share": compute,
        "push_share": push,
        "hold_share": 0.002,
        "shard_wait_share": [pull * w / sum(weights) for w in weights],
        "last_share": 0.71 if slow else draw.uniform(0, 0.02),
        "bytes_pushed_per_second": 64e6 / step / 30,
        "bytes_pulled_per_second": 64e6 / step / 30,
        "on_gpu": False,
        "gpu_busy_share": 0,
        "device_bytes": 0,
        "host_load": host_load(draw),
    }


def shard(index: int, last: bool, draw: random.Random) -> dict:
    """A ShardReport; the last one applies slowly."""
    return {
        "index": index,
        "address": f"ps-{index}.digits:2222",
        "state": "active",
        "version": 1200,
        "updates_per_second": draw.uniform(30, 33),
        "bytes_received_per_second": draw.uniform(4.1e8, 4.3e8),
        "bytes_sent_per_second": draw.uniform(4.1e8, 4.3e8),
        "apply_seconds": 0.0041 if last else draw.uniform(3.1e-4, 3.4e-4),
        "park_seconds": draw.uniform(0.006, 0.008),
        "parked_pulls": draw.randrange(9),
        "resident_bytes": 1.7e9,
        "out_of_order_bytes": draw.uniform(0, 2e7),
        "host_load": host_load(draw),
    }


def storage() -> dict:
    """The layers, the checkpoint and the tables of a JobReport."""
    return {
        "layer": [
            {"name": f"block_{i}/dense/kernel", "wait_share": 0.09 / (i + 1)}
            for i in range(12)
        ],
        "checkpoint": {
            "newest": "ckpt-1100",
            "age_seconds": 34,
            "last_seconds": 1.84,
            "bytes": 3.2e9,
            "failures": 0,
            "hold_share": 0.002,
        },
        "table": [
            {"name": "users", "rows": 12345678, "bytes": 9.8e9},
            {"name": "items", "rows": 345678, "bytes": 2.1e8},
        ],
    }


def event(i: int) -> dict:
    """An EventReport; some are warnings."""
    said = f"worker {i} registered from node-{i:03d}.cluster"
    if i % 9 == 4:
        said = f"worker {i} lost its lease of slot {i} and is started again"
    return {
        "unix_seconds": BEGAN - 600 + 20 * i,
        "warning": i % 9 == 4,
        "text": said,
    }


def report(workers: int, shards: int, seed: int = 0) -> dict:
    """A JobReport of a sync job that waits for one slow worker."""
    draw = random.Random(seed)
    slow = workers * 417 // 1000
    step = 1200 + seed
    made = {
        "job": "digits",
        "unix_seconds": BEGAN + seed,
        "window_seconds": 10,
        "phase": "training",
        "message": "",
        "mode": "sync",
        "step": step,
        "step_count": 4000,
        "loss": 2.3 * math.exp(-step / 600) + 0.05,
        "examples_per_second": 128 * workers / 0.058,
        "staleness_mean": 1.2,
        "staleness_max": 3,
        "examples": 128 * workers * step,
        "train_seconds": 0.058 * step,
        "cause": {
            "kind": "slow_worker",
            "task": f"worker/{slow}",
            "sentence": f"worker {slow} is the last contributor of 71% of the "
            "steps, 1.8 x the median; its data wait is 62% of its step.",
            "advice": "raise data.workers or move its files.",
            "share": 0.44,
        },
        "worker": [worker(i, shards, i == slow, draw) for i in range(workers)],
        "shard": [shard(i, i == shards - 1, draw) for i in range(shards)],
        **storage(),
        "event": [event(i) for i in range(30)],
    }
    if workers > 100:
        for state, slots in {"absent": [7, 256], "starting": [8]}.items():
            for slot in slots:
                made["worker"][slot] |= {
                    "state": state,
                    "step_seconds": 0,
                    "heartbeat_age_seconds": 12,
                }
    return made


def waiting_report() -> dict:
    """A JobReport before any task is there, with every field at its default."""
    return {
        **{key: 0 for key in report(0, 0) if key not in ("job", "mode")},
        "job": "digits",
        "unix_seconds": BEGAN,
        "phase": "waiting",
        "message": "for 2 of 2 ps and 3 of 3 workers to register",
        "mode": "sync",
        "cause": {
            "kind": "unknown",
            "task": "",
            "sentence": "",
            "advice": "",
            "share": 0,
        },
        "worker": [],
        "shard": [],
        "layer": [],
        "checkpoint": {
            "newest": "",
            "age_seconds": 0,
            "last_seconds": 0,
            "bytes": 0,
            "failures": 0,
            "hold_share": 0,
        },
        "table": [],
        "event": [],
    }


def failed_report() -> dict:
    """A JobReport of a job whose loss is no number any more."""
    made = report(3, 2)
    made |= {
        "phase": "failed",
        "loss": "NaN",
        "message": "out of range: 10 gradients were no numbers, which is more "
        "than train.bad_gradients_max permits: lower the learning rate",
    }
    made["shard"][1]["state"] = "lost"
    made["checkpoint"]["failures"] = 2
    return made


HTML = "<img src=x onerror=\"document.title='taken'\"><b>bold</b>"


def hostile_report(workers: int = 3) -> dict:
    """A JobReport all of whose texts are HTML."""

    def spoil(value):
        if isinstance(value, dict):
            return {key: spoil(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [spoil(inner) for inner in value]
        return HTML if isinstance(value, str) else value

    made = report(workers, 2)
    return spoil(made) | {"phase": "training", "mode": "sync"}


def curve(size: int = POINTS) -> dict:
    """What `GET curve` answers."""
    draw = random.Random(1)
    steps = list(range(10, 10 * size + 10, 10))
    return {
        "step": steps,
        "seconds": [0.058 * step for step in steps],
        "loss": [
            2.3 * math.exp(-step / (3 * size)) + 0.05 + draw.gauss(0, 0.01)
            for step in steps
        ],
        "examples_per_second": [draw.gauss(6600, 150) for _ in steps],
        "staleness_mean": [abs(draw.gauss(1.2, 0.2)) for _ in steps],
    }


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # a connection for each request
    timeout = IDLE_S

    def do_GET(self):
        """Answers a file of the page, the report or the curve."""
        self.server.stand_in.answer(self)

    def handle(self):
        """Answers a request, unless the browser went away meanwhile."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, *_):
        """Says nothing."""


class StandIn:
    """Serves `make_report(n)` of the n-th poll until it is stopped."""

    def __init__(self, make_report, made_curve=None, prefix=""):
        self.make_report = make_report
        self.curve = curve() if made_curve is None else made_curve
        self.prefix = prefix
        self.files = page_files()
        self.polls = 0
        self.status = 200  # of reports and curves
        self.asked = []  # every address
        self.port = 0
        self.start()

    def start(self):
        """Begins to serve, at the same port as before."""
        address = ("127.0.0.1", self.port)
        self.server = http.server.HTTPServer(address, _Handler)
        self.server.stand_in = self
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}{self.prefix}/"
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}
        )
        self.thread.start()

    def stop(self):
        """Goes away, as a chief that is stopped."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def answer(self, handler):
        """One request."""
        path = handler.path.split("?")[0]
        self.asked.append(path)
        inside = path.startswith(self.prefix + "/")
        path = path.removeprefix(self.prefix) if inside else "outside"
        if path in ("/report", "/curve") and self.status != 200:
            self._send(handler, self.status, "text/plain", REFUSAL)
        elif path == "/report":
            made = self.make_report(self.polls)
            self.polls += 1
            body = (
                made if isinstance(made, bytes) else json.dumps(made).encode()
            )
            self._send(handler, 200, "application/json", body)
        elif path == "/curve":
            body = json.dumps(self.curve).encode()
            self._send(handler, 200, "application/json", body)
        elif path in self.files:
            file = self.files[path]
            self._send(handler, 200, TYPES[file.suffix], file.read_bytes())
        else:
            self._send(handler, 404, "text/plain", b"no such thing")

    @staticmethod
    def _send(handler, status, content_type, body):
        handler.send_response(status)
        headers = {
            "Content-Type": content_type,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": "default-src 'self'",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)
