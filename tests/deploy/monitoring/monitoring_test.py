"""The files of alerts and dashboard: that they are new, and name what there is.

Whether a Prometheus takes them, and what fires when, needs its programs:
tests/monitoring/prometheus_test.py.
"""

import json
import pathlib
import re
import sys
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy/monitoring"
sys.path.insert(0, str(FOLDER))

import alerts_table  # noqa: E402
import monitoring  # noqa: E402

PARTS = re.compile(r"_(bucket|sum|count)$")
METER = "worker/train/job_meter.cc"
NAME = re.compile(r"\b(?:weir|process)_[a-z_]*[a-z]\b(?!-)")


def expressions() -> list[str]:
    """Of all alerts and panels."""
    panels = json.loads(monitoring.dashboard())["panels"]
    return [alert.expression for alert in alerts_table.ALERTS] + [
        target["expr"]
        for panel in panels
        for target in panel.get("targets", [])
    ]


def names(text: str) -> set[str]:
    """The metrics that a text names."""
    return set(NAME.findall(text))


def counted() -> dict[str, str]:
    """Every metric of the sources, with the method that adds it."""
    text = "".join(
        path.read_text()
        for path in [
            ROOT / METER,
            # Not all of the tree: it has links to folders that Bazel changes.
            *(ROOT / "proto").rglob("*_metrics.cc"),
            *(ROOT / "server").rglob("*_metrics.cc"),
            *(ROOT / "worker").rglob("*_metrics.cc"),
        ]
    )
    return {
        name: method
        for method, name in re.findall(r'Add(\w+)\(\s*"(\w+)"', text)
    }


def relabeled(labels: dict[str, str], rules: list[dict]) -> dict[str, str]:
    """What Prometheus makes of a target's labels; {} where it drops it."""
    labels = dict(labels)
    for rule in rules:
        joined = rule.get("separator", ";").join(
            labels.get(name, "") for name in rule["source_labels"]
        )
        match = re.fullmatch(rule.get("regex", "(.*)"), joined)
        action = rule.get("action", "replace")
        if action != "replace":
            if (match is None) == (action == "keep"):
                return {}
        elif match:
            template = rule.get("replacement", "$1").replace("$", "\\")
            labels[rule["target_label"]] = match.expand(template)
    return labels


class MonitoringTest(unittest.TestCase):
    """One test for each promise of the files."""

    def test_the_files_are_what_the_script_writes(self):
        for name, text in (
            ("alerts.yaml", monitoring.alerts()),
            ("dashboard.json", monitoring.dashboard()),
        ):
            self.assertEqual(
                (FOLDER / name).read_text(),
                text,
                f"run deploy/monitoring/monitoring.py for {name}",
            )

    def test_every_metric_of_an_expression_is_counted_by_a_task(self):
        known = set(counted())
        self.assertGreater(len(known), 40)
        for expression in expressions():
            for name in names(expression):
                self.assertIn(PARTS.sub("", name), known, expression)

    def test_a_rate_is_of_what_only_grows(self):
        kinds = counted()
        for expression in expressions():
            for name in re.findall(r"(?:rate|increase)\((\w+)", expression):
                base = PARTS.sub("", name)
                wanted = "Counter" if base == name else "Histogram"
                self.assertEqual(kinds[base], wanted, expression)

    def test_the_guide_lists_every_metric(self):
        guide = (ROOT / "docs/monitoring.md").read_text()
        table = guide.split("## Metrics", 1)[1].split("\n## ", 1)[0]
        rows = "\n".join(re.findall(r"(?m)^\|([^|]*)\|", table))
        self.assertEqual(names(rows), set(counted()))

    def test_the_guide_lists_every_alert(self):
        guide = (ROOT / "docs/monitoring.md").read_text()
        listed = re.findall(r"(?m)^\| `(Weir\w+)`", guide)
        self.assertEqual(listed, [a.name for a in alerts_table.ALERTS])

    def test_the_guides_scrape_configuration_finds_the_pods_that_run(self):
        guide = (ROOT / "docs/monitoring.md").read_text()
        (text,) = re.findall(r"(?s)```yaml\n(rule_files:.*?)```", guide)
        (config,) = yaml.safe_load(text)["scrape_configs"]
        kubernetes = "__meta_kubernetes_"
        pod = {
            "__address__": "10.0.0.1:2222",
            kubernetes + "namespace": "ml",
            kubernetes + "pod_annotation_prometheus_io_port": "9464",
            kubernetes + "pod_annotation_prometheus_io_scrape": "true",
            kubernetes + "pod_label_app_kubernetes_io_instance": "digits",
            kubernetes + "pod_label_app_kubernetes_io_name": "weir",
            kubernetes + "pod_phase": "Running",
        }

        def target(change: dict[str, str]) -> dict[str, str]:
            return relabeled(pod | change, config["relabel_configs"])

        self.assertEqual(target({})["__address__"], "10.0.0.1:9464")
        self.assertEqual(target({})["job"], "ml/digits")
        for address, wanted in (
            ("10.0.0.1", "10.0.0.1:9464"),
            ("[fd00::1]:2222", "[fd00::1]:9464"),
        ):
            found = target({"__address__": address})
            self.assertEqual(found["__address__"], wanted)
        for phase in ("Succeeded", "Failed"):
            self.assertEqual(target({kubernetes + "pod_phase": phase}), {})

    def test_every_alert_is_tested_firing_and_quiet(self):
        tests = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())
        seen = {True: set(), False: set()}
        for one in tests["tests"]:
            for check in one["alert_rule_test"]:
                seen[bool(check["exp_alerts"])].add(check["alertname"])
        for alert in alerts_table.ALERTS:
            self.assertIn(alert.name, seen[True])
            self.assertIn(alert.name, seen[False])

    def test_the_rules_are_yaml_with_what_people_need(self):
        (group,) = yaml.safe_load(monitoring.alerts())["groups"]
        self.assertEqual(len(group["rules"]), len(alerts_table.ALERTS))
        for rule in group["rules"]:
            self.assertNotIn("@", rule["expr"])
            self.assertIn(rule["labels"]["severity"], ("critical", "warning"))
            self.assertIn("{{ $labels.job }}", rule["annotations"]["summary"])
            self.assertTrue(rule["annotations"]["description"])

    def test_a_scale_shortens_times_and_nothing_else(self):
        self.assertEqual(monitoring.scaled("x[@10m] > 30", 1.0), "x[10m] > 30")
        self.assertEqual(monitoring.scaled("x[@10m] > 30", 0.02), "x[12s] > 30")
        self.assertEqual(monitoring.scaled("x[@1m] > 30", 0.02), "x[5s] > 30")
        self.assertEqual(monitoring.scaled("x > @15m.seconds", 1.0), "x > 900")
        self.assertEqual(monitoring.scaled("x > @15m.seconds", 0.02), "x > 18")
        self.assertEqual(monitoring.hold("@10m", 0.02), "12s")
        self.assertEqual(monitoring.hold("@0m", 0.02), "0m")

    def test_panels_fill_the_grid_without_overlap(self):
        taken = set()
        panels = json.loads(monitoring.dashboard())["panels"]
        self.assertEqual(
            [panel["id"] for panel in panels],
            list(range(1, len(panels) + 1)),
        )
        for panel in panels:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24)
            for y in range(place["y"], place["y"] + place["h"]):
                for x in range(place["x"], place["x"] + place["w"]):
                    self.assertNotIn((x, y), taken, panel["title"])
                    taken.add((x, y))


if __name__ == "__main__":
    unittest.main()
