"""What an operator does when a task ends, worked out from the rendered file.

`load(target, text)` reads what `weir render TARGET` prints. The result's
`after(End(...))` says what the operator does with a task that ended so. A file
that the operator would not take raises `Refused`.

The rules are those of these documents, and of the sources where a document is
silent:

  Job       kubernetes.io, "Jobs", sections "Pod backoff failure policy" and
            "Pod failure policy"; "Handling retriable and non-retriable pod
            failures with Pod failure policy"; the API reference of
            PodFailurePolicy
  JobSet    jobset.sigs.k8s.io, "Failure Policy" and "Success Policy"; KEP-262,
            "Configurable Failure Policy"; failure_policy.go of JobSet 0.9
  Volcano   "How to Configure Volcano Job Policy"; applyPolicies and the states
            Running and Restarting of its job controller, and the webhook that
            validates a Job, of Volcano 1.12
  TFJob     kubeflow.org, "TensorFlow Training (TFJob)", RestartPolicy and
            CleanPodPolicy; the job controller of Kubeflow's training operator
            1.9
  compose   docs.docker.com, "Start containers automatically"
  Slurm     the manual pages srun(1) and sbatch(1) of 22.05

One end of one task is looked at while all others run, apart from the others of
its own role: where the operator waits for all of a role, these have ended well.
"""

import dataclasses
import enum
import functools
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

import yaml


class Outcome(enum.Enum):
    """What an operator does. "Counted" means against a limit of the job."""

    COMPLETE = "complete"  # of this task; the job goes on
    JOB_COMPLETE = "job complete"  # and the operator removes what still runs
    JOB_COMPLETE_REST_RUNS = "job complete, the rest runs on"
    NEW_POD_COUNTED = "new pod, counted"
    NEW_POD_NOT_COUNTED = "new pod, not counted"
    IN_PLACE = "again in its place"
    ROLE_AGAIN = "all of its role again"
    ALL_AGAIN = "all again"
    STAYS_ENDED = "stays ended"  # and the others go on
    FAILS_UNLESS_DONE = (
        "stays ended, the job fails at its end unless it is done"
    )
    ENDS_BADLY = "stays ended, the job fails at its end"
    ROLE_FAILS = "its Job fails"  # and the Jobs of other roles go on
    JOB_FAILS = "job fails"


class Refused(ValueError):
    """The file, or the request, is not one that the operator would take."""


@dataclasses.dataclass(frozen=True)
class End:
    """How a task ended."""

    role: str
    code: int | None  # None: the pod failed and its main container has no code
    # The pod has the condition DisruptionTarget: it was evicted, preempted, or
    # its node goes. Under compose and Slurm: the host goes, or the job is
    # preempted.
    disrupted: bool = False
    before: int = 0  # how often the operator has counted an end before


def need(condition: object, message: str) -> None:
    """Raises Refused with the message unless the condition holds."""
    if not condition:
        raise Refused(message)


def variable(pod: dict, name: str) -> str | None:
    """The value of a variable of the pod's first container."""
    for entry in pod["containers"][0].get("env", []):
        if entry["name"] == name:
            return entry.get("value")
    return None


def only(documents: list[dict], group: str, kind: str) -> dict:
    """The one document of a kind."""
    found = [
        document
        for document in documents
        if document["kind"] == kind
        and document["apiVersion"].startswith(group + "/")
    ]
    need(len(found) == 1, f"{len(found)} documents of kind {kind}, not one")
    return found[0]


class Job:
    """A Job of Kubernetes, with the rules of its controller."""

    ACTIONS = ("FailJob", "Ignore", "Count")
    RULES_MAX = 20
    VALUES_MAX = 255
    BACKOFF_LIMIT_DEFAULT = 6

    def __init__(self, spec: dict) -> None:
        self.pod = spec["template"]["spec"]
        self.restart = self.pod.get("restartPolicy", "Always")
        need(
            self.restart in ("Never", "OnFailure"),
            f"restartPolicy: {self.restart} is not one for a Job",
        )
        self.limit = spec.get("backoffLimit", self.BACKOFF_LIMIT_DEFAULT)
        self.rules = []
        for field in ("backoffLimitPerIndex", "successPolicy"):
            need(field not in spec, f"{field}: not worked out here")
        if "podFailurePolicy" in spec:
            need(
                self.restart == "Never",
                "podFailurePolicy: only with restartPolicy Never",
            )
            need(
                spec.get("podReplacementPolicy", "Failed") == "Failed",
                "podReplacementPolicy: only Failed with podFailurePolicy",
            )
            self.rules = spec["podFailurePolicy"]["rules"]
        need(len(self.rules) <= self.RULES_MAX, "too many rules")
        for rule in self.rules:
            self.check(rule)

    @property
    def role(self) -> str:
        """The role of the pods."""
        return variable(self.pod, "WEIR_TASK_TYPE")

    def check(self, rule: dict) -> None:
        """Refuses a rule that the API server refuses."""
        need(rule["action"] in self.ACTIONS, f"action {rule['action']}")
        conditions = rule.get("onPodConditions") or []
        codes = rule.get("onExitCodes")
        need(
            (codes is None) != (not conditions),
            "a rule has either onExitCodes or onPodConditions",
        )
        if codes is None:
            return
        values = codes["values"]
        need(codes["operator"] in ("In", "NotIn"), codes["operator"])
        need(
            values == sorted(set(values)),
            "values of exit codes are sorted, and each is there once",
        )
        need(0 < len(values) <= self.VALUES_MAX, f"{len(values)} values")
        need(
            codes["operator"] == "NotIn" or 0 not in values,
            "0 is no exit code of a failure",
        )
        containers = self.pod["containers"] + self.pod.get("initContainers", [])
        need(
            codes.get("containerName")
            in [None, *(c["name"] for c in containers)],
            f"there is no container {codes.get('containerName')}",
        )

    def fits(self, rule: dict, end: End) -> bool:
        """Whether a rule is for a pod that failed so."""
        codes = rule.get("onExitCodes")
        if codes is None:
            return end.disrupted and any(
                condition["type"] == "DisruptionTarget"
                and condition.get("status", "True") == "True"
                for condition in rule["onPodConditions"]
            )
        main = self.pod["containers"][0]["name"]
        if end.code is None or codes.get("containerName", main) != main:
            return False
        return (end.code in codes["values"]) == (codes["operator"] == "In")

    def after(self, end: End) -> tuple[Outcome, str]:
        """What the controller does, and the reason where the Job fails."""
        if end.code == 0:
            return Outcome.COMPLETE, ""
        if self.restart == "OnFailure" and not end.disrupted:
            return self.counted(end, Outcome.IN_PLACE)
        for rule in self.rules:
            if not self.fits(rule, end):
                continue
            if rule["action"] == "FailJob":
                return Outcome.ROLE_FAILS, "PodFailurePolicy"
            if rule["action"] == "Ignore":
                return Outcome.NEW_POD_NOT_COUNTED, ""
            break
        return self.counted(end, Outcome.NEW_POD_COUNTED)

    def counted(self, end: End, outcome: Outcome) -> tuple[Outcome, str]:
        """The outcome, unless this end is one too many."""
        if end.before + 1 > self.limit:
            return Outcome.ROLE_FAILS, "BackoffLimitExceeded"
        return outcome, ""


class Jobs:
    """A Job for each role, which know nothing of each other."""

    def __init__(self, documents: list[dict]) -> None:
        jobs = [
            Job(document["spec"])
            for document in documents
            if document["kind"] == "Job"
        ]
        self.jobs = {job.role: job for job in jobs}
        need(len(self.jobs) == len(jobs), "two Jobs of the same role")

    def roles(self) -> list[str]:
        """The roles, in the file's order."""
        return list(self.jobs)

    def after(self, end: End) -> Outcome:
        """What the Job controller does."""
        return self.jobs[end.role].after(end)[0]


class JobSet:
    """A JobSet: what its controller makes of the ends of its Jobs."""

    REASONS = (
        "BackoffLimitExceeded",
        "DeadlineExceeded",
        "FailedIndexes",
        "MaxFailedIndexesExceeded",
        "PodFailurePolicy",
    )
    # RestartJob and its like are behind a feature gate that is off.
    ACTIONS = (
        "FailJobSet",
        "RestartJobSet",
        "RestartJobSetAndIgnoreMaxRestarts",
    )
    RULE_NAME = r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"

    def __init__(self, documents: list[dict]) -> None:
        spec = only(documents, "jobset.x-k8s.io", "JobSet")["spec"]
        self.jobs = {
            job["name"]: Job(job["template"]["spec"])
            for job in spec["replicatedJobs"]
        }
        self.names = {job.role: name for name, job in self.jobs.items()}
        success = spec.get("successPolicy", {"operator": "All"})
        self.operator = success["operator"]
        self.targets = success.get("targetReplicatedJobs") or list(self.jobs)
        self.failure = spec.get("failurePolicy")
        need(self.operator in ("All", "Any"), f"operator {self.operator}")
        self.check_names(self.targets)
        rules = (self.failure or {}).get("rules", [])
        need(
            len({rule["name"] for rule in rules}) == len(rules),
            "two rules of the same name",
        )
        for rule in rules:
            need(re.fullmatch(self.RULE_NAME, rule["name"]), rule["name"])
            need(rule["action"] in self.ACTIONS, rule["action"])
            reasons = rule.get("onJobFailureReasons", [])
            need(set(reasons) <= set(self.REASONS), f"reasons {reasons}")
            self.check_names(rule.get("targetReplicatedJobs", []))
            need(
                "onJobFailureMessagePatterns" not in rule,
                "patterns of messages: not worked out here",
            )

    def check_names(self, names: list[str]) -> None:
        """Refuses a name that no replicated Job has."""
        for name in names:
            need(name in self.jobs, f"there is no replicated Job {name}")

    def roles(self) -> list[str]:
        """The roles, in the file's order."""
        return list(self.names)

    def after(self, end: End) -> Outcome:
        """What both controllers do. `before` counts for both limits."""
        name = self.names[end.role]
        outcome, reason = self.jobs[name].after(end)
        if outcome == Outcome.COMPLETE and (
            self.targets == [name]
            or (self.operator == "Any" and name in self.targets)
        ):
            return Outcome.JOB_COMPLETE
        if outcome != Outcome.ROLE_FAILS:
            return outcome
        return self.after_job(name, reason, end.before)

    def after_job(self, name: str, reason: str, before: int) -> Outcome:
        """What follows when a Job has failed."""
        if self.failure is None:
            return Outcome.JOB_FAILS
        action = "RestartJobSet"  # where no rule fits
        for rule in self.failure.get("rules", []):
            if reason not in (rule.get("onJobFailureReasons") or [reason]):
                continue
            if name in (rule.get("targetReplicatedJobs") or [name]):
                action = rule["action"]
                break
        if action == "FailJobSet":
            return Outcome.JOB_FAILS
        if action == "RestartJobSet":
            # A Job's limit is reached many times before the JobSet's.
            job_limit = self.jobs[name].limit + 1
            if before // job_limit >= self.failure.get("maxRestarts", 0):
                return Outcome.JOB_FAILS
        return Outcome.ALL_AGAIN


class Volcano:
    """A Job of Volcano: policies of the task, then those of the job."""

    EVENTS = (
        "*",
        "PodEvicted",
        "PodFailed",
        "PodPending",
        "TaskCompleted",
        "TaskFailed",
        "Unknown",
    )
    OUTCOMES = {  # noqa: RUF012
        "AbortJob": Outcome.JOB_FAILS,
        "TerminateJob": Outcome.JOB_FAILS,
        "CompleteJob": Outcome.JOB_COMPLETE,
        "RestartJob": Outcome.ALL_AGAIN,
        "RestartTask": Outcome.ROLE_AGAIN,
        "RestartPod": Outcome.NEW_POD_COUNTED,
        # It is for an aborted job. A job that runs is only looked at.
        "ResumeJob": None,
    }
    MAX_RETRY_DEFAULT = 3

    def __init__(self, documents: list[dict]) -> None:
        spec = only(documents, "batch.volcano.sh", "Job")["spec"]
        self.policies = spec.get("policies", [])
        self.tasks = {
            task["name"]: task.get("policies", []) for task in spec["tasks"]
        }
        self.limit = spec.get("maxRetry", self.MAX_RETRY_DEFAULT)
        for task in spec["tasks"]:
            pod = task["template"]["spec"]
            need(
                pod.get("restartPolicy") == "Never",
                "restartPolicy: only Never is worked out here",
            )
        for policies in [self.policies, *self.tasks.values()]:
            self.check(policies)

    def check(self, policies: list[dict]) -> None:
        """Refuses what Volcano's webhook refuses."""
        events, codes = [], []
        for policy in policies:
            of_this = self.events(policy)
            need(policy["action"] in self.OUTCOMES, policy["action"])
            need(
                bool(of_this) != ("exitCode" in policy),
                "a policy has either events or an exitCode",
            )
            need("timeout" not in policy, "timeout: not worked out here")
            need(set(of_this) <= set(self.EVENTS), f"events {of_this}")
            events += of_this
            if "exitCode" in policy:
                codes.append(policy["exitCode"])
        need(len(set(events)) == len(events), "an event is there twice")
        need("*" not in events or len(events) == 1, "* and another event")
        need(0 not in codes, "0 is not a valid error code")
        need(len(set(codes)) == len(codes), "an exitCode is there twice")

    @staticmethod
    def events(policy: dict) -> list[str]:
        """The events of a policy."""
        event = [policy["event"]] if "event" in policy else []
        return policy.get("events", []) + event

    def roles(self) -> list[str]:
        """The roles, in the file's order."""
        return list(self.tasks)

    def action(self, role: str, event: str, code: int) -> str | None:
        """The action of the first policy that fits; None where none does."""
        for policy in self.tasks[role] + self.policies:
            if {event, "*"} & set(self.events(policy)):
                return policy["action"]
            if code != 0 and policy.get("exitCode") == code:
                return policy["action"]
        return None

    def after(self, end: End) -> Outcome:
        """What the controller does.

        A pod that is evicted brings two events: PodFailed with the code of its
        container, and PodEvicted when the object goes.
        """
        if end.code == 0:
            outcome = Outcome.COMPLETE
            action = self.action(end.role, "TaskCompleted", 0)
        else:
            outcome = Outcome.STAYS_ENDED
            action = self.action(end.role, "PodFailed", end.code or 0)
        if action in (None, "ResumeJob") and end.disrupted:
            action = self.action(end.role, "PodEvicted", 0)
        if action is not None and self.OUTCOMES[action] is not None:
            outcome = self.OUTCOMES[action]
        # Every restart counts for the whole job, also after an eviction.
        restart = action is not None and action.startswith("Restart")
        if restart and end.before + 1 >= self.limit:
            return Outcome.JOB_FAILS
        return outcome


class TFJob:
    """A TFJob of Kubeflow's training operator."""

    ROLES = {  # noqa: RUF012
        "Chief": "chief",
        "Evaluator": "evaluator",
        "PS": "ps",
        "Worker": "worker",
    }
    POLICIES = ("Always", "ExitCode", "Never", "OnFailure")
    CONTAINER = "tensorflow"

    def __init__(self, documents: list[dict]) -> None:
        spec = only(documents, "kubeflow.org", "TFJob")["spec"]
        self.specs = {}
        for kind, replica in spec["tfReplicaSpecs"].items():
            need(kind in self.ROLES, f"there is no replica type {kind}")
            containers = replica["template"]["spec"]["containers"]
            need(
                self.CONTAINER in [c["name"] for c in containers],
                f"{kind} has no container {self.CONTAINER}",
            )
            policy = replica.get("restartPolicy", "Never")
            need(policy in self.POLICIES, f"restartPolicy: {policy}")
            self.specs[self.ROLES[kind]] = policy
        run = spec.get("runPolicy", {})
        self.limit = run.get("backoffLimit")
        self.clean = run.get("cleanPodPolicy", "None")
        need(self.clean in ("All", "None", "Running"), self.clean)
        need(
            not spec.get("enableDynamicWorker", False),
            "enableDynamicWorker: not worked out here",
        )

    def roles(self) -> list[str]:
        """The roles, in the file's order."""
        return list(self.specs)

    def after(self, end: End) -> Outcome:
        """What the controller does."""
        policy = self.specs[end.role]
        in_place = policy == "Always" or (
            policy == "OnFailure" and end.code != 0
        )
        if in_place and not end.disrupted:  # by the kubelet
            if self.limit is not None and end.before + 1 >= self.limit:
                return Outcome.JOB_FAILS
            return Outcome.IN_PLACE
        if end.code == 0:
            main = "chief" if "chief" in self.specs else "worker"
            if end.role != main:
                return Outcome.COMPLETE
            if self.clean == "None":
                return Outcome.JOB_COMPLETE_REST_RUNS
            return Outcome.JOB_COMPLETE
        # ExitCode: 1 to 127 are permanent. A pod whose container has no code is
        # taken for one that may be tried again.
        if policy == "Never":
            return Outcome.JOB_FAILS
        if policy == "ExitCode" and end.code is not None and end.code < 128:
            return Outcome.JOB_FAILS
        # backoffLimit counts restarts in place; a new pod begins at none.
        return Outcome.NEW_POD_NOT_COUNTED


class Compose:
    """A compose file: the restart policy of each container."""

    def __init__(self, documents: list[dict]) -> None:
        self.services = {}
        for name, service in documents[0]["services"].items():
            role = service["environment"]["WEIR_TASK_TYPE"]
            restart = service.get("restart", "no")
            need(isinstance(restart, str), f"{name}: write restart: 'no'")
            need(
                re.fullmatch(
                    r"no|always|unless-stopped|on-failure(:[1-9][0-9]*)?",
                    restart,
                ),
                f"{name}: restart: {restart}",
            )
            need(
                self.services.setdefault(role, restart) == restart,
                f"{role}: two restart policies",
            )

    def roles(self) -> list[str]:
        """The roles, in the file's order."""
        return list(self.services)

    def after(self, end: End) -> Outcome:
        """What the daemon does, which is itself what a disruption ends."""
        policy, _, limit = self.services[end.role].partition(":")
        if policy in ("always", "unless-stopped"):
            return Outcome.IN_PLACE
        if end.code == 0:
            return Outcome.COMPLETE
        if policy == "no" or end.disrupted:
            return Outcome.STAYS_ENDED
        if limit and end.before >= int(limit):
            return Outcome.STAYS_ENDED
        return Outcome.IN_PLACE


class Slurm:
    """A batch script with one step. The script really runs, with an `srun` that
    runs one task, and an `scancel` that only takes notes."""

    PROGRAMS = {  # noqa: RUF012
        "srun": """while [[ $1 == --* ]]; do shift; done
            "$@"; code=$?
            [ -z "$FAKE_DONE" ] || : >"$WEIR_RUN/DONE"
            exit $code""",
        "scancel": 'printf "%s\n" "$*" >>"$WEIR_RUN/scancel"',
        "weir": '[ "$1" != secret ] || { echo secret; exit; }; exit $FAKE_CODE',
    }

    def __init__(self, text: str) -> None:
        self.text = text
        self.batch = re.findall(r"^#SBATCH +(--.*)$", text, re.MULTILINE)
        joined = text.replace("\\\n", " ")
        steps = [
            shlex.split(line)
            for line in joined.splitlines()
            if re.match(r"\s*(if +!? *)?srun\b", line)
        ]
        need(len(steps) == 1, f"{len(steps)} steps, not one")
        step = steps[0]
        self.options = {}
        for word in step[step.index("srun") + 1 :]:
            if not word.startswith("--"):
                break  # the command
            name, _, value = word.partition("=")
            self.options[name] = value
        layout = step[step.index("--layout") + 1]
        self.layout = [part.partition("=")[0] for part in layout.split(",")]

    def roles(self) -> list[str]:
        """The roles, in the order of ranks."""
        return self.layout

    @functools.cache  # noqa: B019
    def script(self, code: int, done: bool) -> tuple[int, bool]:
        """Runs the script: its code, and whether it stops the other tasks."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            run = root / "run"
            run.mkdir()
            for name, line in self.PROGRAMS.items():
                program = root / name
                program.write_text(f"#!/bin/bash\n{line}\n", encoding="utf-8")
                program.chmod(0o755)
            environment = {
                "PATH": f"{root}:/usr/bin:/bin",
                "FAKE_CODE": str(code),
                "FAKE_DONE": "yes" if done else "",
                "WEIR_RUN": str(run),
                "SLURM_SUBMIT_DIR": str(root),
                "SLURM_JOB_ID": "17",
                "SLURM_STEP_ID": "0",
            }
            ended = subprocess.run(
                ["/bin/bash"],
                input=self.text,
                text=True,
                env=environment,
                cwd=root,
                capture_output=True,
                timeout=30,
                check=False,
            )
            notes = run / "scancel"
            stops = ["--signal=TERM 17.0\n"]
            stopped = notes.exists() and [notes.read_text()] == stops
            return ended.returncode, stopped

    def after(self, end: End) -> Outcome:
        """What Slurm does. srun ends with the highest code of all tasks, and
        starts none again; --kill-on-bad-exit and --wait say whether one task's
        end ends the step."""
        if end.disrupted:
            requeue = "--requeue" in self.batch
            return Outcome.ALL_AGAIN if requeue else Outcome.JOB_FAILS
        if self.options.get("--wait", "0") != "0":
            return Outcome.JOB_FAILS  # the others are killed after that time
        if end.code == 0:
            return Outcome.COMPLETE
        need(end.code is not None, "a task of a step always has a code")
        if self.options.get("--kill-on-bad-exit", "0") != "0":
            return Outcome.JOB_FAILS
        code, stopped = self.script(end.code, done=False)
        if code == 0:
            return Outcome.STAYS_ENDED
        if stopped:
            return Outcome.JOB_FAILS
        if self.script(end.code, done=True) == (0, False):
            return Outcome.FAILS_UNLESS_DONE
        return Outcome.ENDS_BADLY


KINDS = {
    "k8s": Jobs,
    "jobset": JobSet,
    "volcano": Volcano,
    "tfjob": TFJob,
    "compose": Compose,
}
TARGETS = [*KINDS, "slurm"]


def documents_of(text: str) -> list[dict]:
    """The YAML documents of a rendered file."""
    # The parser in C: the one in Python takes most of the time of a test.
    loaded = yaml.load_all(text, Loader=yaml.CSafeLoader)
    return [document for document in loaded if document]


def load(target: str, text: str):
    """The operator that was given this file. Raises Refused."""
    if target == "slurm":
        return Slurm(text)
    return KINDS[target](documents_of(text))
