"""The table of exit code, role and operator, on the files of `weir render`.

TABLE is the table. `wanted` says what docs/exit_codes.md asks of every
operator; where one cannot do it, EXCEPTIONS has the reason. policies.py works
out what an operator does from the file.
"""

import copy
import dataclasses
import itertools
import os
import re
import subprocess
import unittest
from collections.abc import Callable
from functools import cache
from pathlib import Path

import policies
import yaml
from policies import End, Outcome

JOB = "examples/digits.textproto"
ARGUMENTS = {
    "all roles": [JOB, "--evaluator"],
    "worker 0 hosts the chief": [JOB, "--nochief", "--noevaluator"],
    "a user's program": ["--image", "my/image", "--", "python", "train.py"],
}

NO_CODE = None  # the pod failed before its main container had a code
CODES = {
    "done": [0],
    # 126 and 127 are a runtime's: it cannot start the program.
    "permanent": [1, 2, 3, 4, 6, 126, 127],
    "replaced": [5],
    # 128 and 255 are a runtime's: a container that was not started, and one
    # that a restart of its node has ended.
    "transient": [128, 130, 134, 137, 138, 139, 143, 255],
    "no code": [NO_CODE],
}
# What docs/render.md promises for a user's program. `weir task` starts none
# again whose code is below 128.
USER_CODES = [7, 63, 64, 125]

# The words of the table.
WORDS = {
    "complete": Outcome.COMPLETE,
    "job done": Outcome.JOB_COMPLETE,
    "new": Outcome.NEW_POD_COUNTED,
    "free": Outcome.NEW_POD_NOT_COUNTED,
    "in place": Outcome.IN_PLACE,
    "all again": Outcome.ALL_AGAIN,
    "gone": Outcome.STAYS_ENDED,
    "at end": Outcome.FAILS_UNLESS_DONE,
    "Job fails": Outcome.ROLE_FAILS,
    "all fails": Outcome.JOB_FAILS,
}
# The "main" task is the one whose end is the job's end. "hit" means that a
# disruption ended the task. The columns are the kinds of codes, as in CODES.
TABLE = """
target  | role  | hit | 0         | 1-4, ...  | 5         | >= 128    | none
k8s     | any   | no  | complete  | Job fails | free      | new       | new
k8s     | any   | yes | complete  | free      | free      | free      | free
jobset  | main  | no  | job done  | all fails | free      | new       | new
jobset  | main  | yes | job done  | free      | free      | free      | free
jobset  | other | no  | complete  | all fails | free      | new       | new
jobset  | other | yes | complete  | free      | free      | free      | free
volcano | main  | no  | job done  | all fails | gone      | new       | new
volcano | main  | yes | job done  | all fails | new       | new       | new
volcano | other | no  | complete  | all fails | gone      | new       | new
volcano | other | yes | new       | all fails | new       | new       | new
tfjob   | main  | any | job done  | all fails | all fails | free      | free
tfjob   | other | any | complete  | all fails | all fails | free      | free
compose | any   | no  | complete  | in place  | in place  | in place  |
compose | any   | yes | complete  | gone      | gone      | gone      |
slurm   | any   | no  | complete  | all fails | at end    | at end    |
slurm   | any   | yes | all again | all again | all again | all again |
"""

# Where an operator cannot do what is wanted: the target, the kind of code ("*"
# for all), whether the task was disrupted; and why.
EXCEPTIONS = {
    ("k8s", "permanent", False): (
        "Jobs know nothing of each other: the chief, which hears of a worker's "
        "error, ends the other tasks"
    ),
    ("k8s", "replaced", False): (
        "the Job controller makes a new pod for each that failed; at least it "
        "is not counted"
    ),
    ("jobset", "replaced", False): "as of k8s",
    ("volcano", "*", True): (
        "Volcano does not tell an eviction from a failure: both count, so "
        "maxRetry is high; and a pod that is deleted after it ended with 0 is "
        "made again, reads DONE and ends with 0"
    ),
    ("slurm", "transient", False): (
        "weir task starts its program again twenty times; once it gives up the "
        "job ends with that code, and is to be submitted again"
    ),
    ("tfjob", "replaced", False): (
        "ExitCode takes each code from 1 to 127 for permanent"
    ),
    ("tfjob", "replaced", True): "as above",
    ("compose", "permanent", False): (
        "a restart policy knows no codes: the task is tried ten times"
    ),
    ("compose", "replaced", False): "as above",
    ("compose", "*", True): (
        "a host that restarts has ended the whole job: `up` goes on with it"
    ),
}


def wanted(target: str, kind: str, main: bool, disrupted: bool) -> set[Outcome]:
    """What docs/exit_codes.md asks for."""
    if kind == "done":
        if target == "slurm" and disrupted:
            return {Outcome.ALL_AGAIN}  # the job is queued again as a whole
        # Only these three know of the job as a whole, and may remove the rest.
        if main and target in ("jobset", "volcano", "tfjob"):
            return {Outcome.JOB_COMPLETE}
        return {Outcome.COMPLETE}
    if disrupted:
        # Nobody's fault, so it is not counted. What a task says of an error is
        # as true as ever, and is said again by the next one.
        again = {Outcome.NEW_POD_NOT_COUNTED, Outcome.ALL_AGAIN}
        return again | ({Outcome.JOB_FAILS} if kind == "permanent" else set())
    return {
        "permanent": {Outcome.JOB_FAILS},
        # Under Slurm the job has no code of its own but its tasks'.
        "replaced": {Outcome.STAYS_ENDED, Outcome.FAILS_UNLESS_DONE},
        "transient": {
            Outcome.NEW_POD_COUNTED,
            Outcome.NEW_POD_NOT_COUNTED,
            Outcome.IN_PLACE,
            Outcome.ALL_AGAIN,
        },
    }["transient" if kind == "no code" else kind]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One place of the table, for one code."""

    role: str
    main: bool
    disrupted: bool
    kind: str
    code: int | None

    def __str__(self) -> str:
        how = " and was disrupted" if self.disrupted else ""
        return f"{self.role} ended with {self.code}{how}"


def expected_table() -> dict[tuple[str, bool, bool, str], Outcome]:
    """TABLE by target, main, disrupted and kind of code."""
    table = {}
    for line in TABLE.strip().splitlines()[1:]:
        target, role, hit, *cells = [word.strip() for word in line.split("|")]
        roles = {"main": [True], "other": [False], "any": [True, False]}[role]
        hits = {"yes": [True], "no": [False], "any": [True, False]}[hit]
        for main, disrupted in itertools.product(roles, hits):
            for kind, cell in zip(CODES, cells, strict=True):
                if cell:
                    table[target, main, disrupted, kind] = WORDS[cell]
    return table


EXPECTED = expected_table()


@cache
def render(target: str, what: str, *more: str) -> str:
    """What `weir render` prints for one of ARGUMENTS."""
    words = list(ARGUMENTS[what])
    split = words.index("--") if "--" in words else len(words)
    words[split:split] = ["--ps", "2", "--workers", "2", *more]
    return subprocess.run(
        [
            Path(os.environ["WEIR_BIN_DIR"]) / "deploy/cli/weir_cli",
            "render",
            target,
            *words,
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def outcomes(target: str, text: str, user: bool = False) -> dict[Cell, Outcome]:
    """What the operator does, in every cell."""
    operator = policies.load(target, text)
    roles = operator.roles()
    found = {}
    for role in roles:
        main = role == ("chief" if "chief" in roles else "worker")
        for disrupted in (False, True):
            for kind, codes in CODES.items():
                if (target, main, disrupted, kind) not in EXPECTED:
                    continue
                more = (
                    USER_CODES
                    if user and role == "worker" and kind == "permanent"
                    else []
                )
                for code in codes + more:
                    cell = Cell(role, main, disrupted, kind, code)
                    found[cell] = operator.after(End(role, code, disrupted))
    return found


def differences(target: str, text: str, user: bool = False) -> dict[Cell, str]:
    """Where the operator does not do what the table says."""
    different = {}
    for cell, outcome in outcomes(target, text, user).items():
        expected = EXPECTED[target, cell.main, cell.disrupted, cell.kind]
        if outcome != expected:
            different[cell] = (
                f"{target}: {cell}: {outcome.value}, not {expected.value}"
            )
    return different


class TableTest(unittest.TestCase):
    def test_each_operator_does_with_each_code_what_the_table_says(self):
        for what in ARGUMENTS:
            for target in policies.TARGETS:
                with self.subTest(what=what, target=target):
                    wrong = differences(
                        target, render(target, what), what.startswith("a user")
                    )
                    if wrong:
                        self.fail("\n" + "\n".join(wrong.values()))

    def test_the_table_is_what_the_page_of_exit_codes_asks_for(self):
        used = set()
        for (target, main, disrupted, kind), outcome in EXPECTED.items():
            if outcome in wanted(target, kind, main, disrupted):
                continue
            keys = {(target, kind, disrupted), (target, "*", disrupted)}
            with self.subTest(target=target, kind=kind, disrupted=disrupted):
                self.assertTrue(keys & set(EXCEPTIONS), outcome.value)
            used |= keys
        self.assertEqual(set(EXCEPTIONS) - used, set())

    def test_no_code_of_the_page_is_left_out(self):
        page = Path("docs/exit_codes.md").read_text(encoding="utf-8")
        by_code = page.split("## By code")[1].split("\n## ")[0]
        named = {
            int(code)
            for code in re.findall(r"^\| (\d+) \|", by_code, re.MULTILINE)
        }
        self.assertLessEqual({0, 5, 6, 138}, named)
        self.assertEqual(
            named - {c for codes in CODES.values() for c in codes}, set()
        )

    def test_every_task_of_the_job_has_a_policy(self):
        for target in policies.TARGETS:
            operator = policies.load(target, render(target, "all roles"))
            self.assertEqual(
                sorted(operator.roles()), ["chief", "evaluator", "ps", "worker"]
            )
            operator = policies.load(
                target, render(target, "worker 0 hosts the chief")
            )
            self.assertEqual(sorted(operator.roles()), ["ps", "worker"])


class LimitsTest(unittest.TestCase):
    """A task that fails again and again does so for a time only."""

    def after(
        self, target: str, before: int, disrupted: bool = False
    ) -> Outcome:
        operator = policies.load(target, render(target, "all roles"))
        return operator.after(End("worker", 138, disrupted, before))

    def test_a_job_gives_up(self):
        self.assertEqual(self.after("k8s", 100), Outcome.NEW_POD_COUNTED)
        self.assertEqual(self.after("k8s", 10**6), Outcome.ROLE_FAILS)

    def test_disruptions_are_without_limit(self):
        for target in ("k8s", "jobset", "tfjob"):
            self.assertEqual(
                self.after(target, 10**9, True), Outcome.NEW_POD_NOT_COUNTED
            )

    def test_a_jobset_starts_all_again_before_it_gives_up(self):
        text = render("jobset", "all roles")
        worker = policies.load("jobset", text).jobs["worker"]
        self.assertEqual(self.after("jobset", worker.limit), Outcome.ALL_AGAIN)
        self.assertEqual(self.after("jobset", 10**9), Outcome.JOB_FAILS)

    def test_volcano_gives_up(self):
        self.assertEqual(self.after("volcano", 100), Outcome.NEW_POD_COUNTED)
        self.assertEqual(self.after("volcano", 10**6), Outcome.JOB_FAILS)

    def test_compose_gives_up(self):
        self.assertEqual(self.after("compose", 5), Outcome.IN_PLACE)
        self.assertEqual(self.after("compose", 100), Outcome.STAYS_ENDED)

    def test_slurm_queues_a_job_again_that_it_stopped_itself(self):
        self.assertEqual(self.after("slurm", 1), Outcome.FAILS_UNLESS_DONE)
        self.assertEqual(self.after("slurm", 1, True), Outcome.ALL_AGAIN)


def first(documents: list[dict], kind: str, role: str = "") -> dict:
    """The spec of the first document of a kind, or of that role's Job."""
    for document in documents:
        if document["kind"] == kind:
            labels = document["metadata"]["labels"]
            if role in ("", labels["app.kubernetes.io/component"]):
                return document["spec"]
    raise AssertionError(f"there is no {kind} {role}")


def rules(documents: list[dict]) -> list[dict]:
    """The failure policy of the workers' Job."""
    return first(documents, "Job", "worker")["podFailurePolicy"]["rules"]


def volcano_without(documents: list[dict], **policy) -> None:
    """Removes one policy of the job."""
    spec = first(documents, "Job")
    spec["policies"] = [
        entry
        for entry in spec["policies"]
        if not policy.items() <= entry.items()
    ]


def tf_replicas(documents: list[dict]) -> dict:
    """The replica types of a TFJob."""
    return first(documents, "TFJob")["tfReplicaSpecs"]


def drop_code(code: int) -> Callable[[list[dict]], None]:
    """Takes one code out of the rule that fails the workers' Job."""
    return lambda documents: rules(documents)[-1]["onExitCodes"][
        "values"
    ].remove(code)


# A change of a rendered file, and a cell that it must make wrong.
MUTATIONS = [
    ("k8s", "3 is no longer permanent", drop_code(3), ("worker", 3, False)),
    (
        "k8s",
        "5 fails the Job",
        lambda documents: rules(documents)[1].update(action="FailJob"),
        ("worker", 5, False),
    ),
    (
        "k8s",
        "a disruption counts",
        lambda documents: rules(documents).pop(0),
        ("worker", 143, True),
    ),
    (
        "k8s",
        "a permanent code goes before a disruption",
        lambda documents: rules(documents).insert(0, rules(documents).pop()),
        ("worker", 2, True),
    ),
    (
        "k8s",
        "a rule about all codes but some",
        lambda documents: rules(documents)[-1]["onExitCodes"].update(
            operator="NotIn"
        ),
        ("worker", 138, False),
    ),
    (
        "k8s",
        "no second try",
        lambda documents: first(documents, "Job", "worker").update(
            backoffLimit=0
        ),
        ("worker", 138, False),
    ),
    (
        "jobset",
        "a ps ends the job",
        lambda documents: first(documents, "JobSet")["successPolicy"].update(
            operator="Any", targetReplicatedJobs=[]
        ),
        ("ps", 0, False),
    ),
    (
        "jobset",
        "a permanent error starts all again",
        lambda documents: first(documents, "JobSet")["failurePolicy"].update(
            rules=[]
        ),
        ("worker", 3, False),
    ),
    (
        "volcano",
        "3 is no longer permanent",
        lambda documents: volcano_without(documents, exitCode=3),
        ("worker", 3, False),
    ),
    (
        "volcano",
        "the chief's end is not the job's",
        lambda documents: first(documents, "Job")["tasks"][1].pop("policies"),
        ("chief", 0, False),
    ),
    (
        "volcano",
        "a task's policy goes before the job's",
        lambda documents: first(documents, "Job")["tasks"][0].update(
            policies=[{"event": "*", "action": "TerminateJob"}]
        ),
        ("ps", 138, False),
    ),
    (
        "volcano",
        "one restart is the last",
        lambda documents: first(documents, "Job").update(maxRetry=1),
        ("worker", 138, False),
    ),
    (
        "tfjob",
        "every code is tried again",
        lambda documents: tf_replicas(documents)["Worker"].update(
            restartPolicy="OnFailure"
        ),
        ("worker", 3, False),
    ),
    (
        "tfjob",
        "ps run on after the job",
        lambda documents: first(documents, "TFJob")["runPolicy"].update(
            cleanPodPolicy="None"
        ),
        ("chief", 0, False),
    ),
    (
        "tfjob",
        "no code is tried again",
        lambda documents: tf_replicas(documents)["PS"].update(
            restartPolicy="Never"
        ),
        ("ps", 138, False),
    ),
    (
        "compose",
        "a task that is done starts again",
        lambda documents: [
            service.update(restart="always")
            for service in documents[0]["services"].values()
        ],
        ("worker", 0, False),
    ),
]
SLURM_MUTATIONS = [
    ("--kill-on-bad-exit=0", "--kill-on-bad-exit=1", ("worker", 138, False)),
    ("#SBATCH --requeue", "#SBATCH --no-requeue", ("worker", 143, True)),
    ("--wait=0", "--wait=60", ("worker", 0, False)),
    # A task that was replaced ends the others, and one that failed does not.
    ("-ne 5", "-ne 6", ("worker", 5, False)),
    ("scancel --signal=TERM", "true", ("worker", 3, False)),
    ('elif [ -e "$run/DONE" ]', "elif false", ("worker", 138, False)),
    # The script's own end hides that the step failed.
    ("set -euo pipefail", "trap 'exit 0' EXIT", ("worker", 3, False)),
]


class InterpreterTest(unittest.TestCase):
    """The table can be wrong: each change of a file shows."""

    def check(self, target: str, before: str, after: str, cell: tuple) -> None:
        self.assertNotEqual(before, after, "nothing was changed")
        known = differences(target, before)
        found = {
            (cell.role, cell.code, cell.disrupted)
            for cell in differences(target, after).keys() - known.keys()
        }
        self.assertIn(cell, found)

    def test_a_changed_rule_is_seen(self):
        for target, what, change, cell in MUTATIONS:
            with self.subTest(target=target, what=what):
                text = render(target, "all roles")
                documents = copy.deepcopy(policies.documents_of(text))
                before = yaml.safe_dump_all(documents)
                change(documents)
                self.check(target, before, yaml.safe_dump_all(documents), cell)

    def test_a_changed_batch_script_is_seen(self):
        text = render("slurm", "all roles")
        for old, new, cell in SLURM_MUTATIONS:
            with self.subTest(new=new):
                self.check("slurm", text, text.replace(old, new), cell)

    def test_what_an_operator_refuses_is_refused(self):
        def values(new):
            return lambda documents: rules(documents)[-1]["onExitCodes"].update(
                values=new
            )

        refused = [
            ("k8s", values([2, 1]), "sorted"),
            ("k8s", values([0, 1]), "no exit code of a failure"),
            ("k8s", values(list(range(1, 258))), "257 values"),
            (
                "k8s",
                lambda documents: rules(documents)[-1]["onExitCodes"].update(
                    containerName="other"
                ),
                "no container other",
            ),
            (
                "k8s",
                lambda documents: first(documents, "Job")["template"][
                    "spec"
                ].update(restartPolicy="OnFailure"),
                "only with restartPolicy Never",
            ),
            (
                "k8s",
                lambda documents: first(documents, "Job").update(
                    podReplacementPolicy="TerminatingOrFailed"
                ),
                "podReplacementPolicy",
            ),
            (
                "jobset",
                lambda documents: first(documents, "JobSet")[
                    "successPolicy"
                ].update(targetReplicatedJobs=["boss"]),
                "no replicated Job boss",
            ),
            (
                "volcano",
                lambda documents: first(documents, "Job")["policies"].append(
                    {"exitCode": 3, "action": "RestartPod"}
                ),
                "exitCode is there twice",
            ),
            (
                "tfjob",
                lambda documents: tf_replicas(documents)["PS"].update(
                    restartPolicy="OnExit"
                ),
                "OnExit",
            ),
        ]
        for target, change, message in refused:
            with self.subTest(target=target, message=message):
                documents = copy.deepcopy(
                    policies.documents_of(render(target, "all roles"))
                )
                change(documents)
                with self.assertRaisesRegex(policies.Refused, message):
                    policies.load(target, yaml.safe_dump_all(documents))


if __name__ == "__main__":
    unittest.main()
