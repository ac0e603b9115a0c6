"""A timeline of a job of six tasks in Perfetto's own UI, asked by its SQL.

WEIR_PERFETTO_TOOLS is a virtual environment of deploy/perfetto_tools.txt, whose
Python runs this file with tests/support in PYTHONPATH; `./weir test --full`
makes it. The UI runs in Chromium.
"""

import itertools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from free_ports import free_port

JOB = """
name: "digits" seed: 3
model {
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 64 } }
  layer { name: "relu" relu {} }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 2000 } } }
evaluation { source { digits { count: 200 stream: 1 } } }
train { batch_size: 64 log_every_steps: 1 steps: 1000000 }
optimizer { adam {} }
schedule { learning_rate: 0.002 }
update { sync { contributions: 2 } }
checkpoint { every_steps: 500 }
limits { block_elements: 16384 }
"""
BIN_DIR = os.path.abspath(os.environ.get("WEIR_BIN_DIR", "."))
TOOLS = os.environ.get("WEIR_PERFETTO_TOOLS", "")
CHROMIUM = "/usr/bin/chromium"
SECONDS = 10
DEADLINE_S = 240

QUERY = """async (sql) => {
  const result = await app.trace.engine.query(sql);
  const names = result.columns();
  const rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    rows.push(names.map((name) => {
      const value = it.get(name);
      return typeof value === "bigint" ? Number(value) : value;
    }));
  }
  return rows;
}"""

# Each slice of the lanes `train`, with the task and the step that it is in.
STEPS = """
with part as (
  select slice.name, slice.dur, coalesce(above.id, own.id, slice.id) as step,
         process.name as task
  from slice
  join thread_track on slice.track_id = thread_track.id
  join thread using (utid) join process using (upid)
  left join slice own on slice.parent_id = own.id
  left join slice above on own.parent_id = above.id
  where thread.name = 'train'
), whole as (
  select part.*, extract_arg(slice.arg_set_id, 'args.sequence') as sequence
  from part join slice on part.step = slice.id where slice.name = 'step'
)
"""


def wait_until(what: str, condition):
    """Returns what `condition` returns once that is true."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {DEADLINE_S} s")


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Perfetto:
    """The UI with one file, in a browser without a window."""

    def __init__(self, test: unittest.TestCase, file: pathlib.Path):
        """Serves the UI, opens the file in it, and waits until it is read."""
        # Only there where the tools are.
        from playwright.sync_api import sync_playwright

        port = free_port()
        viewer = [f"{TOOLS}/bin/vizviewer", "--server_only", "--port"]
        server = subprocess.Popen(
            [*viewer, str(port), str(file)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        test.addCleanup(server.wait)
        test.addCleanup(server.kill)
        wait_until("vizviewer", lambda: answers(port))
        playwright = sync_playwright().start()
        test.addCleanup(playwright.stop)
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        test.addCleanup(browser.close)
        self.page = browser.new_page()
        self.errors = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(f"http://127.0.0.1:{port}")
        self.page.wait_for_function(
            "globalThis.app && app.trace && app.trace.engine",
            timeout=DEADLINE_S * 1000,
        )

    def ask(self, sql: str) -> list[list]:
        """The rows of a query."""
        return self.page.evaluate(QUERY, sql)


@unittest.skipUnless(TOOLS, "no WEIR_PERFETTO_TOOLS: ./weir test --full")
class TimelinesTest(unittest.TestCase):
    """One job and one trace of it."""

    def start(self) -> pathlib.Path:
        """Starts two ps, two workers, a chief and an evaluator."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="weir_perfetto_"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        (folder / "digits.textproto").write_text(JOB)
        job = subprocess.Popen(
            [f"{BIN_DIR}/deploy/cli/weir_cli", "train", "digits.textproto"]
            + ["--workdir=run", "--ps=2", "--workers=2", "--chief"],
            env={**os.environ, "WEIR_BIN_DIR": BIN_DIR},
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(job.wait)
        self.addCleanup(job.send_signal, signal.SIGINT)
        self.run_dir = folder / "run"
        wait_until("step 100", lambda: self.last_step() >= 100)
        return folder

    def lines(self) -> list[dict]:
        """The whole lines of train.jsonl."""
        try:
            text = (self.run_dir / "train.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def last_step(self) -> int:
        """That of the newest line."""
        lines = self.lines()
        return lines[-1]["step"] if lines else 0

    def test_the_ui_shows_what_the_job_did(self):
        """Lanes, flows and sums of waits."""
        folder = self.start()
        trace = folder / "trace.json"
        done = subprocess.run(
            [f"{BIN_DIR}/deploy/cli/weir_cli", "trace", str(self.run_dir)]
            + [f"--seconds={SECONDS}", f"--out={trace}"],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        after = self.last_step()
        # The workers' reports on it follow.
        wait_until("reports", lambda: self.last_step() > after + 1000)
        ui = Perfetto(self, trace)
        self.check_lanes(ui)
        self.check_flows(ui)
        self.check_waits(ui)
        self.assertEqual(ui.errors, [])

    def check_lanes(self, ui: Perfetto):
        """Every task but the evaluator has lanes, and nothing was misread."""
        rows = ui.ask(
            "select process.name, count() from slice "
            "join thread_track on slice.track_id = thread_track.id "
            "join thread using (utid) join process using (upid) group by 1"
        )
        tasks = {"chief", "ps 0", "ps 1", "worker 0", "worker 1"}
        self.assertEqual({name for name, _ in rows}, tasks)
        bad = ui.ask(
            "select name, value from stats where severity = 'error' "
            "and value > 0"
        )
        self.assertEqual(bad, [])

    def check_flows(self, ui: Perfetto):
        """From a push to its update, and from there to the next pull.

        Tasks begin and end to record at times of their own. An arrow counts
        when all who push and apply were recording then: from the latest first
        slice of a ps or worker to the earliest last one.
        """
        [[begin, end]] = ui.ask(
            "select max(first), min(last) from (select min(slice.ts) as first, "
            "max(slice.ts) as last from slice "
            "join thread_track on slice.track_id = thread_track.id "
            "join thread using (utid) join process using (upid) "
            "where process.name != 'chief' group by process.name)"
        )
        rows = ui.ask(
            "select source.name, target.name, count() from flow "
            "join slice source on flow.slice_out = source.id "
            "join slice target on flow.slice_in = target.id "
            f"where source.ts > {begin} and target.ts < {end} group by 1, 2"
        )
        counts = {(source, target): count for source, target, count in rows}
        self.assertEqual(set(counts), {("send", "apply"), ("apply", "receive")})
        self.assertGreater(min(counts.values()), 100)

    def check_waits(self, ui: Perfetto):
        """Over the same steps they are those of `phases`, within 2%.

        Workers report twice a second, each for itself, and a step has a line
        when both have reported it. So at the last line of a report one of them
        had reported as many contributions as there are steps, and the other
        one the rest; which is which follows from what fits.
        """
        [[begin, end]] = ui.ask(
            STEPS + "select max(first), min(last) from (select "
            "min(sequence) as first, max(sequence) + 1 as last "
            "from whole group by task)"
        )
        heard = []  # steps, the rest, and the phases
        lines = [line for line in self.lines() if "phases" in line]
        for line, behind in itertools.pairwise(lines):
            count = line["phases"]["contributions"]
            rest = count - line["step"]
            is_last = behind["phases"]["contributions"] != count
            if is_last and begin <= line["step"] <= rest <= end:
                heard.append((line["step"], rest, line["phases"]))
        self.assertGreater(len(heard), 4, f"contributions {begin} to {end}")
        (*before, reported_before), (*after, reported) = heard[0], heard[-1]
        worst = {}
        for first in (before, before[::-1]):
            for last in (after, after[::-1]):
                traced = self.waits(ui, first, last)
                told = []
                for name in ("data", "pull", "push"):
                    field = f"{name}_wait_seconds"
                    seconds = reported[field] - reported_before[field]
                    ours = traced.get(f"{name} wait", 0.0)
                    told.append((name, round(ours, 6), round(seconds, 6)))
                off = max(
                    (abs(ours - seconds) - 1e-4) / max(seconds, 1e-9)
                    for _, ours, seconds in told
                )
                worst[off] = told
        print("waits, traced and reported:", worst[min(worst)])
        self.assertLess(min(worst), 0.02, worst)

    def waits(self, ui: Perfetto, first: list[int], last: list[int]) -> dict:
        """Seconds by name: contributions [first, last) of both workers."""
        rows = ui.ask(
            STEPS + "select name, sum(dur) from whole "
            f"where (task = 'worker 0' and sequence >= {first[0]} "
            f"and sequence < {last[0]} or task = 'worker 1' "
            f"and sequence >= {first[1]} and sequence < {last[1]}) "
            "and name like '% wait' group by 1"
        )
        return {name: ns * 1e-9 for name, ns in rows}


if __name__ == "__main__":
    unittest.main()
