#!/usr/bin/env python3
"""Writes the alert rules of Prometheus and the dashboard of Grafana.

  deploy/monitoring/monitoring.py                   write both files here
  deploy/monitoring/monitoring.py --check           say whether they are new
  deploy/monitoring/monitoring.py --alerts FILE --scale 0.02
                                                    rules for a test, in which
                                                    10 minutes are 12 seconds

What is in them comes from alerts_table.py and dashboard_table.py. Whoever wants
other bounds changes those and runs this.
"""

import argparse
import json
import math
import pathlib
import re
import sys

import alerts_table
import dashboard_table

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = {"s": 1, "m": 60, "h": 3600}
# A range must hold some scrapes, which are a second apart in a test.
SHORTEST_RANGE_S = 5

HEAD = """\
# Alerts on jobs of Weir, for Prometheus. Written by monitoring.py: change
# alerts_table.py and run it. See "Alerts and dashboard" in docs/monitoring.md.
"""


def duration(match: re.Match, scale: float) -> str:
    """What stands in an expression for @10m or @10m.seconds."""
    number, unit, in_seconds = match.groups()
    seconds = int(number) * SECONDS[unit]
    if scale != 1.0 and seconds > 0:
        seconds = max(math.ceil(seconds * scale), 1)
        if not in_seconds:
            return f"{max(seconds, SHORTEST_RANGE_S)}s"
    if in_seconds:
        return str(seconds)
    return f"{number}{unit}"


def scaled(text: str, scale: float) -> str:
    """The text with durations in place of what stands for them."""
    return re.sub(
        r"@(\d+)([smh])(\.seconds)?", lambda m: duration(m, scale), text
    )


def hold(text: str, scale: float) -> str:
    """For how long an alert must be true."""
    number, unit = int(text[1:-1]), text[-1]
    if scale == 1.0 or number == 0:
        return f"{number}{unit}"
    return f"{max(math.ceil(number * SECONDS[unit] * scale), 1)}s"


def alerts(scale: float = 1.0) -> str:
    """The rules, as YAML in which each string is one of JSON."""
    lines = [HEAD + "groups:", "  - name: weir", "    rules:"]
    for alert in alerts_table.ALERTS:
        expression = scaled(alert.expression, scale)
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(expression)}",
            f"        for: {hold(alert.hold, scale)}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          description: {json.dumps(alert.action)}",
        ]
    return "\n".join(lines) + "\n"


SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def targets(panel: dashboard_table.Panel) -> list[dict]:
    """The queries of a panel."""
    return [
        {
            "datasource": SOURCE,
            "editorMode": "code",
            "expr": expression,
            "format": "heatmap" if panel.kind == "heatmap" else "time_series",
            "legendFormat": legend or "__auto",
            "range": True,
            "refId": chr(ord("A") + i),
        }
        for i, (expression, legend) in enumerate(panel.queries)
    ]


OPTIONS = {
    "timeseries": {
        "legend": {
            "calcs": [],
            "displayMode": "list",
            "placement": "bottom",
            "showLegend": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "heatmap": {
        "calculate": False,
        "cellGap": 1,
        "color": {
            "exponent": 0.5,
            "fill": "dark-orange",
            "mode": "scheme",
            "scale": "exponential",
            "scheme": "Oranges",
            "steps": 64,
        },
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"show": True, "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "unit": "s"},
    },
    "stat": {
        "colorMode": "none",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {
            "calcs": ["lastNotNull"],
            "fields": "",
            "values": False,
        },
        "textMode": "value",
    },
    "state-timeline": {
        "alignValue": "left",
        "legend": {
            "displayMode": "list",
            "placement": "bottom",
            "showLegend": False,
        },
        "mergeValues": True,
        "rowHeight": 0.9,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    },
}


def looks(panel: dashboard_table.Panel) -> dict:
    """How a panel of its kind is drawn."""
    defaults = {"unit": panel.unit}
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "fillOpacity": 30 if panel.stacked else 0,
            "lineWidth": 1,
            "showPoints": "never",
            "stacking": {
                "group": "A",
                "mode": "normal" if panel.stacked else "none",
            },
        }
        if panel.stacked and panel.unit == "percentunit":
            defaults |= {"min": 0, "max": 1}
    options = OPTIONS[panel.kind]
    if panel.shows_name:
        options = options | {"textMode": "name"}
    return {
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }


def variable(name: str, label: str, query: str, multiple: bool) -> dict:
    """A choice of values of a label."""
    return {
        "datasource": SOURCE,
        "definition": query,
        "hide": 0,
        "includeAll": multiple,
        "label": label,
        "multi": multiple,
        "name": name,
        "query": {
            "query": query,
            "refId": "PrometheusVariableQueryEditor-VariableQuery",
        },
        "refresh": 2,
        "sort": 3,
        "type": "query",
    }


def panels() -> list[dict]:
    """All rows, one below the other, with their panels from the left."""
    made: list[dict] = []
    y = 0
    for row in dashboard_table.ROWS:
        made.append(
            {
                "collapsed": False,
                "gridPos": {"h": 1, "w": 24, "x": 0, "y": y},
                "id": len(made) + 1,
                "panels": [],
                "title": row.title,
                "type": "row",
            }
        )
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > 24:
                y, x = y + height, 0
            height = 4 if panel.kind == "stat" else 8
            one = {
                "datasource": SOURCE,
                "description": panel.description,
                "gridPos": {"h": height, "w": panel.width, "x": x, "y": y},
                "id": len(made) + 1,
                "targets": targets(panel),
                "title": panel.title,
                "type": panel.kind,
            } | looks(panel)
            if panel.repeat:
                one |= {
                    "maxPerRow": 3,
                    "repeat": panel.repeat,
                    "repeatDirection": "h",
                }
            made.append(one)
            x += panel.width
        y += height
    return made


def dashboard() -> str:
    """The dashboard as JSON."""
    whole = {
        "__inputs": [],
        "__requires": [
            {
                "id": "grafana",
                "name": "Grafana",
                "type": "grafana",
                "version": "10.0.0",
            },
            {
                "id": "prometheus",
                "name": "Prometheus",
                "type": "datasource",
                "version": "1.0.0",
            },
        ],
        "annotations": {"list": []},
        "description": "A training job of Weir: does it learn, how fast is it "
        "and what holds it back, is it healthy.",
        "editable": True,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "id": None,
        "links": [],
        "panels": panels(),
        "refresh": "30s",
        "schemaVersion": 38,
        "tags": ["weir"],
        "templating": {
            "list": [
                {
                    "hide": 0,
                    "includeAll": False,
                    "label": "Data source",
                    "multi": False,
                    "name": "datasource",
                    "query": "prometheus",
                    "refresh": 1,
                    "type": "datasource",
                },
                variable(
                    "job", "Job", "label_values(weir_job_step, job)", False
                ),
                variable(
                    "worker",
                    "Workers",
                    'label_values(weir_task_info{job="$job", role="worker"}'
                    ", index)",
                    True,
                ),
            ]
        },
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "",
        "title": "Weir job",
        "uid": "weir-job",
        "version": 1,
        "weekStart": "",
    }
    return json.dumps(whole, indent=2) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; 1 if a file is old"
    )
    parser.add_argument("--alerts", metavar="FILE", help="write only the rules")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of all times in the rules"
    )
    options = parser.parse_args()
    if options.scale <= 0:
        parser.error(f"--scale takes a number above 0, not {options.scale}")
    if options.alerts:
        pathlib.Path(options.alerts).write_text(alerts(options.scale))
        return 0
    if options.scale != 1.0:
        parser.error("--scale is for --alerts FILE")
    status = 0
    for name, text in (
        ("alerts.yaml", alerts()),
        ("dashboard.json", dashboard()),
    ):
        path = HERE / name
        if not options.check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path} is not what monitoring.py writes; run it")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
