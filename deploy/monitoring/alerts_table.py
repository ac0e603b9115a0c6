"""The alerts on a job: when each of them fires, and what it tells people.

Place: monitoring.py writes them as the rules of Prometheus.

Terms
  job   what `job` is to Prometheus: the name of its scrape job, which must be
        one for each job of Weir.

In an expression `@10m` is a duration, and `@10m.seconds` the number of its
seconds. Both are what a test shortens; every other number stays what it is.

Invariants
  I1. A job that is well raises none of them, from its start to its end, and
      neither does one that has ended.
  I2. What has an alert of its own does not raise a second one as its
      consequence, where the expression can tell.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Alert:
    """One rule of Prometheus. `hold` is how long it must be true to fire."""

    name: str
    expression: str
    hold: str
    severity: str  # "critical": somebody looks now; "warning": today
    summary: str
    action: str


def during(phases: str) -> str:
    """Limits what a chief says to phases of its job."""
    return f'and on (job, instance) weir_job_phase{{phase=~"{phases}"}} == 1'


# W workers that are equally fast see W - 1 updates of the others between a
# pull and its push. The mean can hardly be more, however slow one of them is,
# since every update is seen only by those who are at work at that moment. So
# the quantile is compared, and with a multiple that a busy host stays below.
STALENESS_PER_WORKER = 8
# The last bucket of the histogram that has a bound. With more workers than
# these it cannot tell what is normal from what is not.
STALENESS_MAX = 62
STALENESS_WORKERS_MAX = 15

ALERTS = [
    Alert(
        name="WeirWorkerAbsent",
        expression='weir_job_workers{state=~"absent|starting"} > 0 '
        + during("waiting|training"),
        hold="@5m",
        severity="critical",
        summary="{{ $value }} slots of {{ $labels.job }} have no worker at "
        "work: {{ $labels.state }}",
        action="See whether the worker's process or pod ended and with which "
        "code, and start it again. One that is starting for so long cannot "
        "reach the chief or a ps: its log says which. In a sync job the "
        "others wait for it.",
    ),
    Alert(
        name="WeirPsLost",
        expression="weir_job_ps_lost > 0 "
        + during("waiting|training|finishing"),
        hold="@2m",
        severity="critical",
        summary="{{ $value }} ps of {{ $labels.job }} do not answer the chief",
        action="`weir top` names the ps. Start it again if it has ended: the "
        "chief restores it from the newest checkpoint. If it runs, look at "
        "the network between the chief and it.",
    ),
    Alert(
        name="WeirChiefUnreachable",
        # The ps outlive a chief that died, and end before one that is done.
        # `up` does not count: a pod that is gone is no target any more, and
        # one that was replaced may still be one. A script's job may never have
        # had a chief.
        expression="count by (job) (weir_ps_version) "
        "unless on (job) weir_job_step "
        "and on (job) last_over_time(weir_job_step[@24h])",
        hold="@2m",
        severity="critical",
        summary="The chief of {{ $labels.job }} cannot be scraped",
        action="See whether its process or pod runs, and start it again: "
        "workers and ps wait for it and go on from where they are. No "
        "checkpoint is written without it.",
    ),
    Alert(
        name="WeirTaskUnreachable",
        expression='up == 0 and on (job) weir_job_phase{phase="training"} == 1',
        hold="@5m",
        severity="warning",
        summary="{{ $labels.instance }} of {{ $labels.job }} cannot be scraped",
        action="If the task has ended, another alert says what the job lacks. "
        "If it runs, look at its admin port, at --admin_address and at the "
        "NetworkPolicy.",
    ),
    Alert(
        name="WeirNoProgress",
        expression="changes(weir_job_step[@10m]) == 0 "
        + during("training")
        + " unless on (job, instance) "
        'weir_job_workers{state=~"absent|starting"} > 0'
        + " unless on (job, instance) weir_job_ps_lost > 0",
        hold="@10m",
        severity="critical",
        summary="{{ $labels.job }} makes no step, and no task of it is missing",
        action="`weir top` and the page of the chief say what the job waits "
        "for. A task that hangs has an old heartbeat or does not answer at "
        "/healthz: end it, so that it is started again.",
    ),
    Alert(
        name="WeirHeartbeatOld",
        # A chief gives up a worker after limits.lost_after_seconds, which are
        # 10 if the job does not say otherwise.
        expression="max_over_time(weir_heartbeat_age_seconds[@5m]) > 5",
        hold="@5m",
        severity="warning",
        summary="The worker of slot {{ $labels.slot }} of {{ $labels.job }} "
        "is silent for up to {{ $value | humanizeDuration }}",
        action="A worker says something every second. Its host is short of "
        "processors or memory, or its network loses packets. After "
        "limits.lost_after_seconds of silence the chief gives the worker up.",
    ),
    Alert(
        name="WeirCheckpointStuck",
        expression="weir_checkpoint_under_way_seconds > @15m.seconds",
        hold="@1m",
        severity="critical",
        summary="A checkpoint of {{ $labels.job }} has taken "
        "{{ $value | humanizeDuration }}",
        action="The log of the chief names the file that it waits for. Look "
        "at that ps and at the disk or the object store that it writes to. A "
        "job with checkpoints that take so long needs a larger bound here.",
    ),
    Alert(
        name="WeirCheckpointOld",
        # A chief that has just resumed a run finds an old one.
        expression="time() - weir_checkpoint_last_success_timestamp_seconds "
        "> @2h.seconds " + during("training") + " and on (job, instance) "
        "time() - process_start_time_seconds > @2h.seconds",
        hold="@5m",
        severity="warning",
        summary="The newest checkpoint of {{ $labels.job }} is "
        "{{ $value | humanizeDuration }} old",
        action="That much work is lost if the ps are lost. See the log of the "
        "chief for why none was written. A job that is to write fewer needs a "
        "larger bound here.",
    ),
    Alert(
        name="WeirCheckpointFails",
        expression="increase(weir_checkpoint_failures_total[@30m]) > 0",
        hold="@0m",
        severity="warning",
        summary="Checkpoints of {{ $labels.job }} cannot be written",
        action="The log of the chief has the reason, mostly a full disk or "
        "missing rights. Training goes on, and the checkpoint before stays.",
    ),
    Alert(
        name="WeirStalenessGrows",
        expression="histogram_quantile(0.99, sum by (job, le) "
        "(rate(weir_ps_staleness_steps_bucket[@5m]))) > on (job) "
        f"clamp_max({STALENESS_PER_WORKER} * sum by (job) "
        f'(weir_job_workers{{state="working"}}), {STALENESS_MAX - 1}) '
        'and on (job) sum by (job) (weir_job_workers{state="working"}) '
        f"<= {STALENESS_WORKERS_MAX}",
        hold="@10m",
        severity="warning",
        summary="Gradients of {{ $labels.job }} are "
        "{{ $value | humanize }} updates old",
        action="One worker is much slower than the others, and what it pushes "
        "was computed from old values. `weir top` names it and its cause. "
        "bounded_staleness in the job file keeps the others from running "
        "ahead.",
    ),
    Alert(
        name="WeirLossNotFinite",
        expression="weir_job_loss != weir_job_loss "
        "or abs(weir_job_loss) == Inf",
        hold="@0m",
        severity="critical",
        summary="The loss of {{ $labels.job }} is {{ $value }}",
        action="Stop the job and resume it from a checkpoint before that, "
        "with a lower learning rate or with clipping; look at the data of "
        "those steps.",
    ),
    Alert(
        name="WeirMemoryNearLimit",
        expression="process_resident_memory_bytes "
        "/ weir_task_memory_limit_bytes > 0.9",
        hold="@5m",
        severity="warning",
        summary="{{ $labels.instance }} of {{ $labels.job }} uses "
        "{{ $value | humanizePercentage }} of the memory that it may use",
        action="The kernel ends it at its limit. Raise the limit, or give the "
        "job more ps, or workers a smaller batch.",
    ),
]
