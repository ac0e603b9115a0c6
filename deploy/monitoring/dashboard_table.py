"""The panels of the dashboard: what is shown, in which unit, of which metrics.

Place: monitoring.py writes them as a dashboard of Grafana.

Invariants
  I1. Every expression has data on any job that trains and has been evaluated
      once. What only some jobs have is 0 on the others.
"""

import dataclasses

JOB = 'job="$job"'
RATE = "[$__rate_interval]"


@dataclasses.dataclass(frozen=True)
class Panel:
    """One chart. `queries` are pairs of an expression and its legend."""

    title: str
    kind: str  # "timeseries", "stat", "heatmap" or "state-timeline"
    unit: str
    queries: tuple[tuple[str, str], ...]
    description: str
    width: int = 8  # of 24
    stacked: bool = False
    shows_name: bool = False  # the legend in place of the value
    repeat: str = ""  # a variable: one chart for each of its values


@dataclasses.dataclass(frozen=True)
class Row:
    """Panels that belong together, below a title."""

    title: str
    panels: tuple[Panel, ...]


def of_task(expression: str, more: str = "") -> str:
    """Gives series of tasks the labels `role` and `index`."""
    return (
        f"({expression}) * on (job, instance) group_left (role, index) "
        f"weir_task_info{{{JOB}{more}}}"
    )


def rate(name: str, more: str = "") -> str:
    """The rate of a counter, with more matchers."""
    return f"rate({name}{{{JOB}{more}}}{RATE})"


def quantile(q: float, name: str, by: str = "") -> str:
    """A quantile of a histogram, over all tasks, or `by` another label."""
    labels = "le, " + by if by else "le"
    return (
        f"histogram_quantile({q}, sum by ({labels}) ({rate(name + '_bucket')}))"
    )


def buckets(name: str) -> tuple[tuple[str, str], ...]:
    """What a heatmap shows."""
    return (
        (
            f"sum by (le) (increase({name}_bucket{{{JOB}}}{RATE}))",
            "{{le}}",
        ),
    )


def quantiles(name: str) -> tuple[tuple[str, str], ...]:
    """The middle and the slow end of a histogram."""
    return (
        (quantile(0.5, name), "median"),
        (quantile(0.99, name), "99%"),
    )


def or_zero(
    queries: tuple[tuple[str, str], ...],
) -> tuple[tuple[str, str], ...]:
    """0 where a histogram has counted nothing."""
    return tuple(
        (f"{expression} >= 0 or sum(0 * weir_ps_version{{{JOB}}})", legend)
        for expression, legend in queries
    )


TASK = "{{role}}/{{index}}"

AT_A_GLANCE = Row(
    "At a glance",
    (
        Panel(
            "Phase",
            "stat",
            "none",
            ((f"weir_job_phase{{{JOB}}} == 1", "{{phase}}"),),
            "What the job does.",
            width=3,
            shows_name=True,
        ),
        Panel(
            "Done",
            "stat",
            "percentunit",
            (
                (
                    f"weir_job_step{{{JOB}}} / (weir_job_steps{{{JOB}}} > 0) "
                    f"or 0 * weir_job_step{{{JOB}}}",
                    "",
                ),
            ),
            "Share of the job's steps; 0 for a job without an end.",
            width=3,
        ),
        Panel(
            "Step",
            "stat",
            "none",
            ((f"weir_job_step{{{JOB}}}", ""),),
            "Sync: steps that are done; else contributions.",
            width=3,
        ),
        Panel(
            "Loss",
            "stat",
            "none",
            ((f"weir_job_loss{{{JOB}}}", ""),),
            "The newest.",
            width=3,
        ),
        Panel(
            "Slots without a worker",
            "stat",
            "none",
            ((f'weir_job_workers{{{JOB}, state="absent"}}', ""),),
            "0 in a job that is well.",
            width=3,
        ),
        Panel(
            "ps lost",
            "stat",
            "none",
            ((f"weir_job_ps_lost{{{JOB}}}", ""),),
            "ps that do not answer the chief.",
            width=3,
        ),
        Panel(
            "Tasks that are scraped",
            "stat",
            "none",
            ((f"sum(up{{{JOB}}})", ""),),
            "Of all targets of this job.",
            width=3,
        ),
        Panel(
            "Age of the checkpoint",
            "stat",
            "s",
            (
                (
                    "time() - weir_checkpoint_last_success_timestamp_seconds"
                    f"{{{JOB}}}",
                    "",
                ),
            ),
            "The work that the loss of all ps would cost.",
            width=3,
        ),
    ),
)

LEARNING = Row(
    "Does it learn",
    (
        Panel(
            "Loss",
            "timeseries",
            "none",
            (
                (f"weir_job_loss{{{JOB}}}", "job"),
                (of_task(f"weir_worker_loss{{{JOB}}}"), TASK),
            ),
            "Of the job, and of the newest contribution of each worker.",
        ),
        Panel(
            "Evaluation",
            "timeseries",
            "none",
            ((f"weir_eval_metric{{{JOB}}}", "{{metric}}"),),
            "Of the newest checkpoint that was evaluated.",
        ),
        Panel(
            "Steps",
            "timeseries",
            "none",
            (
                (f"weir_job_step{{{JOB}}}", "trained"),
                (f"weir_eval_step{{{JOB}}}", "evaluated"),
                (f"weir_eval_lag_steps{{{JOB}}}", "evaluation's lag"),
            ),
            "How far training and evaluation are.",
        ),
    ),
)

SPEED = Row(
    "How fast is it, and what holds it back",
    (
        Panel(
            "Examples",
            "timeseries",
            "reqps",
            (
                (f"weir_job_examples_per_second{{{JOB}}}", "job"),
                (of_task(rate("weir_worker_examples_total")), TASK),
            ),
            "A second, of all workers and of each.",
        ),
        Panel(
            "Steps",
            "timeseries",
            "ops",
            (
                (f"deriv(weir_job_step{{{JOB}}}{RATE})", "job"),
                (of_task(rate("weir_worker_items_total")), TASK),
            ),
            "Steps of the job, and contributions of each worker, a second.",
        ),
        Panel(
            "Cause",
            "state-timeline",
            "none",
            ((f"weir_job_cause{{{JOB}}} == 1", "{{cause}}"),),
            "What costs most of a step's time. `weir top` says more.",
        ),
        Panel(
            "Time of a contribution",
            "timeseries",
            "s",
            quantiles("weir_worker_step_seconds"),
            "Of all workers.",
        ),
        Panel(
            "Mean time of a contribution",
            "timeseries",
            "s",
            (
                (
                    of_task(
                        f"{rate('weir_worker_step_seconds_sum')} / "
                        f"{rate('weir_worker_step_seconds_count')}"
                    ),
                    TASK,
                ),
            ),
            "By worker: a slow one stands above the others.",
        ),
        Panel(
            "Straggler",
            "timeseries",
            "s",
            (
                (
                    f"weir_job_straggler_gap_seconds{{{JOB}}}",
                    "waited for the slowest alone",
                ),
            ),
            "Sync: for how long of a step the slowest worker's contribution "
            "is the only one that lacks.",
        ),
        Panel(
            "Blocks that a slot completed",
            "timeseries",
            "percentunit",
            (
                (
                    "sum by (slot) "
                    f"({rate('weir_ps_last_contributor_total')}) "
                    "/ scalar(clamp_min(sum("
                    f"{rate('weir_ps_last_contributor_total')}), 1e-9))",
                    "slot {{slot}}",
                ),
            ),
            "Sync: the share of each slot in being the last contributor. "
            "Even shares are good.",
        ),
        Panel(
            "Waits by shard",
            "timeseries",
            "percentunit",
            (
                (
                    "avg by (shard) "
                    f"({rate('weir_worker_wait_seconds_total')})",
                    "ps/{{shard}}",
                ),
            ),
            "Share of the workers' time for which the answer of this ps came "
            "last.",
        ),
        Panel(
            "Phases of all workers",
            "timeseries",
            "percentunit",
            (
                (
                    "avg by (phase) "
                    f"({rate('weir_worker_phase_seconds_total')})",
                    "{{phase}}",
                ),
            ),
            "Share of wall time.",
            stacked=True,
        ),
        Panel(
            "Phases of worker/$worker",
            "timeseries",
            "percentunit",
            (
                (
                    of_task(
                        rate("weir_worker_phase_seconds_total"),
                        ', index=~"$worker"',
                    ),
                    "{{phase}}",
                ),
            ),
            "Share of wall time.",
            stacked=True,
            repeat="worker",
        ),
    ),
)

SERVERS = Row(
    "Parameter servers",
    (
        Panel(
            "Time to apply a block",
            "heatmap",
            "s",
            buckets("weir_ps_apply_seconds"),
            "With the wait for it.",
        ),
        Panel(
            "Time for which pulls wait",
            "heatmap",
            "s",
            buckets("weir_ps_park_seconds"),
            "For a version, or for a clock.",
        ),
        Panel(
            "Pulls that wait now",
            "timeseries",
            "none",
            ((of_task(f"weir_ps_parked_pulls{{{JOB}}}"), TASK),),
            "By ps.",
        ),
        Panel(
            "Mean time to apply a block",
            "timeseries",
            "s",
            (
                (
                    of_task(
                        f"{rate('weir_ps_apply_seconds_sum')} / "
                        f"{rate('weir_ps_apply_seconds_count')}"
                    ),
                    TASK,
                ),
            ),
            "By ps: a slow one stands above the others.",
        ),
        Panel(
            "Pushed blocks",
            "timeseries",
            "ops",
            (
                (
                    f"sum by (result) ({rate('weir_ps_updates_total')})",
                    "{{result}}",
                ),
            ),
            "A second, by what became of them.",
        ),
        Panel(
            "Traffic",
            "timeseries",
            "Bps",
            (
                (of_task(rate("weir_ps_received_bytes_total")), TASK + " in"),
                (of_task(rate("weir_ps_sent_bytes_total")), TASK + " out"),
            ),
            "Payloads, by ps.",
        ),
        Panel(
            "Staleness",
            "timeseries",
            "none",
            (
                *or_zero(quantiles("weir_ps_staleness_steps")),
                (f"weir_job_staleness_steps{{{JOB}}}", "mean"),
            ),
            "Updates that a block had taken since the values that a push was "
            "computed from; 0 in sync. More than 62 count as 62.",
        ),
        Panel(
            "Version",
            "timeseries",
            "none",
            ((of_task(f"weir_ps_version{{{JOB}}}"), TASK),),
            "Of the block that has the oldest one.",
        ),
        Panel(
            "Broken connections",
            "timeseries",
            "ops",
            (
                (
                    of_task(rate("weir_worker_reconnects_total")),
                    TASK + " reconnects",
                ),
                (
                    of_task(rate("weir_ps_connections_failed_total")),
                    TASK + " not admitted",
                ),
            ),
            "0 in a job that is well.",
        ),
    ),
)

SAFETY = Row(
    "Checkpoints and tasks",
    (
        Panel(
            "Checkpoints",
            "timeseries",
            "s",
            (
                (f"weir_checkpoint_seconds{{{JOB}}}", "the newest took"),
                (
                    f"weir_checkpoint_under_way_seconds{{{JOB}}}",
                    "under way for",
                ),
                (quantile(0.99, "weir_ps_snapshot_seconds"), "a ps, 99%"),
            ),
            "How long they take.",
        ),
        Panel(
            "Size of the checkpoint",
            "timeseries",
            "bytes",
            ((f"weir_checkpoint_bytes{{{JOB}}}", "bytes"),),
            "The newest committed one.",
        ),
        Panel(
            "Failed checkpoints",
            "timeseries",
            "none",
            ((f"weir_checkpoint_failures_total{{{JOB}}}", "failures"),),
            "Since the chief began.",
        ),
        Panel(
            "Workers",
            "timeseries",
            "none",
            ((f"weir_job_workers{{{JOB}}}", "{{state}}"),),
            "Slots by what their worker does.",
            stacked=True,
        ),
        Panel(
            "Age of heartbeats",
            "timeseries",
            "s",
            ((f"weir_heartbeat_age_seconds{{{JOB}}}", "slot {{slot}}"),),
            "Of workers that work.",
        ),
        Panel(
            "Targets",
            "timeseries",
            "none",
            ((f"up{{{JOB}}}", "{{instance}}"),),
            "1 while Prometheus can scrape the task.",
        ),
    ),
)

RESOURCES = Row(
    "Resources",
    (
        Panel(
            "Processors",
            "timeseries",
            "none",
            ((of_task(rate("process_cpu_seconds_total")), TASK),),
            "Cores that each task uses.",
        ),
        Panel(
            "Memory",
            "timeseries",
            "bytes",
            ((of_task(f"process_resident_memory_bytes{{{JOB}}}"), TASK),),
            "In RAM, by task.",
        ),
        Panel(
            "Share of the memory that a task may use",
            "timeseries",
            "percentunit",
            (
                (
                    of_task(
                        f"process_resident_memory_bytes{{{JOB}}} / "
                        f"weir_task_memory_limit_bytes{{{JOB}}}"
                    ),
                    TASK,
                ),
            ),
            "By the limits of its control groups and the RAM of its machine.",
        ),
        Panel(
            "Memory of parameters",
            "timeseries",
            "bytes",
            (
                (
                    f"sum(weir_ps_resident_bytes{{{JOB}}})",
                    "values, optimizer state and sums",
                ),
                (
                    f"sum(weir_ps_out_of_order_bytes{{{JOB}}})",
                    "before their turn",
                ),
                (
                    f"sum by (table) (weir_ps_table_bytes{{{JOB}}}) "
                    f"or sum(0 * weir_ps_resident_bytes{{{JOB}}})",
                    "table {{table}}",
                ),
            ),
            "On all ps.",
        ),
        Panel(
            "Memory of GPUs",
            "timeseries",
            "bytes",
            (
                (
                    of_task(
                        f"weir_worker_device_bytes{{{JOB}}} or "
                        f"0 * weir_worker_items_total{{{JOB}}}"
                    ),
                    TASK,
                ),
            ),
            "0 without a GPU.",
        ),
        Panel(
            "Descriptors",
            "timeseries",
            "percentunit",
            (
                (
                    of_task(
                        f"process_open_fds{{{JOB}}} / process_max_fds{{{JOB}}}"
                    ),
                    TASK,
                ),
            ),
            "Share of those that may be open.",
        ),
    ),
)

ROWS = (AT_A_GLANCE, LEARNING, SPEED, SERVERS, SAFETY, RESOURCES)
