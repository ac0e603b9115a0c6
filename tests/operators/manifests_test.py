"""Rendered manifests, by the judgement of others.

WEIR_OPERATOR_TOOLS is a virtual environment with deploy/operator_tools.txt;
`./weir test --full` makes it. This file runs with that environment's Python.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import types
import unittest
from collections.abc import Sequence

import yaml

BIN_DIR = os.environ.get("WEIR_BIN_DIR", ".")
TOOLS = os.environ.get("WEIR_OPERATOR_TOOLS", "")
JOB = pathlib.Path(__file__).parents[2] / "examples/digits.textproto"
TARGETS = ("k8s", "jobset", "volcano", "tfjob")
# The oldest version whose schema has all that is written, and the one before.
OLDEST, TOO_OLD = "1.28", "1.27"
CORE_GROUPS = {"v1", "batch/v1", "networking.k8s.io/v1", "policy/v1"}
# What checkov finds and why it stays.
EXPLAINED = {
    "CKV_K8S_8": "no liveness probe: a ps that is started again has lost its "
    "shard, and peers notice a task that hangs",
    "CKV_K8S_11": "no CPU limit: a task that is throttled in the middle of a "
    "step holds up all others",
    "CKV_K8S_15": "IfNotPresent: an image that was loaded onto the nodes has "
    "no registry to ask, and a digest always names the same one",
    "CKV_K8S_21": "the namespace is the user's: --namespace",
    "CKV_K8S_43": "the image's digest is the user's: --image NAME@sha256:...",
}
# Options of a user, and what is no longer found with them.
STORE = [
    "--checkpoints=s3://bucket/run",
    "--store_endpoint=http://minio:9000",
    "--store_secret=keys",
]
OPTIONS = [*STORE, "--namespace=training", f"--image=weir@sha256:{'0' * 64}"]
SETTLED = {"CKV_K8S_15", "CKV_K8S_21", "CKV_K8S_43"}


def render(target: str, options: Sequence[str] = ()) -> str:
    """A job with every role."""
    return subprocess.run(
        [f"{BIN_DIR}/deploy/cli/weir_cli", "render", target, str(JOB)]
        + ["--ps=2", "--workers=2", *options],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def documents(target: str, options: Sequence[str] = ()) -> list[dict]:
    """The same, parsed."""
    return [d for d in yaml.safe_load_all(render(target, options)) if d]


def core(target: str, options: Sequence[str] = ()) -> list[dict]:
    """What Kubernetes itself knows of a file: its core kinds, and the Jobs and
    pods that the objects of an operator are made of."""
    found = []
    for document in documents(target, options):
        spec = document.get("spec", {})
        if document["apiVersion"] in CORE_GROUPS:
            found.append(document)
            continue
        if document["kind"] == "JobSet":
            head = {"apiVersion": "batch/v1", "kind": "Job"}
            parts = {
                job["name"]: job["template"] for job in spec["replicatedJobs"]
            }
        elif document["kind"] == "TFJob":
            head = {"apiVersion": "v1", "kind": "Pod"}
            parts = {
                kind.lower(): replica["template"]
                for kind, replica in spec["tfReplicaSpecs"].items()
            }
        else:
            head = {"apiVersion": "v1", "kind": "Pod"}
            parts = {task["name"]: task["template"] for task in spec["tasks"]}
        own = document["metadata"]
        for name, part in parts.items():
            metadata = part["metadata"] | {"name": f"{own['name']}-{name}"}
            if "namespace" in own:
                metadata["namespace"] = own["namespace"]
            found.append(head | {"metadata": metadata, "spec": part["spec"]})
    return found


def lost(before, after, path: str = "") -> list[str]:
    """Which values of `before` are not in `after`, which may have more."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for key, value in before.items():
            found += lost(value, after.get(key), f"{path}/{key}")
        return found
    if isinstance(before, list) and isinstance(after, list):
        found = [] if len(before) == len(after) else [path]
        for i, (mine, theirs) in enumerate(zip(before, after, strict=False)):
            found += lost(mine, theirs, f"{path}/{i}")
        return found
    return [] if before == after else [path]


@unittest.skipUnless(TOOLS, "no WEIR_OPERATOR_TOOLS: ./weir test --full")
class ManifestsTest(unittest.TestCase):
    """Core kinds by their schemas, the others by their official models."""

    def setUp(self):
        """Makes a folder for files."""
        folder = tempfile.TemporaryDirectory(prefix="weir_manifests_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def validate(self, version: str, parts: list[dict]) -> str:
        """The errors of the schema of a version of Kubernetes."""
        path = self.folder / "manifest.yaml"
        path.write_text(yaml.safe_dump_all(parts))
        done = subprocess.run(
            [f"{TOOLS}/bin/kubernetes-validate", "--strict"]
            + ["-k", version, str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = (done.stdout + done.stderr).splitlines()
        self.assertGreaterEqual(
            sum(" for resource " in line for line in lines), len(parts), lines
        )
        return "\n".join(x for x in lines if " passed for resource " not in x)

    def test_what_is_of_kubernetes_is_valid_and_needs_its_version(self):
        """Unknown fields and wrong types are errors."""
        import kubernetes_validate

        for target in TARGETS:
            for version in OLDEST, kubernetes_validate.latest_version():
                for options in [], STORE:
                    with self.subTest(target=target, version=version):
                        parts = core(target, options)
                        self.assertEqual(self.validate(version, parts), "")
        for target in "k8s", "jobset":
            jobs = [d for d in core(target) if d["kind"] == "Job"]
            self.assertEqual(len(jobs), 4)
            self.assertIn("podReplacementPolicy", self.validate(TOO_OLD, jobs))
        jobs[0]["spec"]["completionz"] = 1
        self.assertIn("completionz", self.validate(OLDEST, jobs))
        (pod,) = [
            d for d in core("volcano") if "-chief" in d["metadata"]["name"]
        ]
        pod["spec"]["containers"][0]["imagee"] = "weir"
        self.assertIn("imagee", self.validate(OLDEST, [pod]))

    def test_a_jobset_loses_no_field_in_its_model(self):
        """The model drops what it does not know."""
        from kubeflow_trainer_api import models

        (jobset,) = [d for d in documents("jobset") if d["kind"] == "JobSet"]
        model = models.JobsetV1alpha2JobSet
        self.assertEqual(lost(jobset, model.from_dict(jobset).to_dict()), [])
        jobset["spec"]["successPolicyy"] = "All"
        self.assertEqual(
            lost(jobset, model.from_dict(jobset).to_dict()),
            ["/spec/successPolicyy"],
        )

    def test_a_tfjob_loses_no_field_in_its_model(self):
        """As the JobSet."""
        from kubeflow.training import ApiClient

        (tfjob,) = [d for d in documents("tfjob") if d["kind"] == "TFJob"]
        client = ApiClient()

        def through_the_model() -> dict:
            answer = types.SimpleNamespace(data=json.dumps(tfjob))
            model = client.deserialize(answer, "KubeflowOrgV1TFJob")
            return client.sanitize_for_serialization(model)

        self.assertEqual(lost(tfjob, through_the_model()), [])
        chief = tfjob["spec"]["tfReplicaSpecs"]["Chief"]
        chief["restartPolicyy"] = "ExitCode"
        self.assertEqual(
            lost(tfjob, through_the_model()),
            ["/spec/tfReplicaSpecs/Chief/restartPolicyy"],
        )

    def findings(self, options: Sequence[str]) -> set[str]:
        """What checkov has to say about the files of all targets. It knows no
        severities without its service, so every finding counts."""
        folder = self.folder / f"checkov{len(options)}"
        folder.mkdir()
        for target in TARGETS:
            (folder / f"{target}.yaml").write_text(
                yaml.safe_dump_all(core(target, options))
            )
        done = subprocess.run(
            [f"{TOOLS}/bin/checkov", "--skip-download", "--compact", "--quiet"]
            + ["--framework", "kubernetes", "--output", "json"]
            + ["-d", str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        results = json.loads(done.stdout)
        # Core kinds, pods, and what it derives from them.
        self.assertGreaterEqual(results["summary"]["resource_count"], 4 * 8)
        return {
            check["check_id"] for check in results["results"]["failed_checks"]
        }

    def test_checkov_finds_nothing_that_is_not_explained(self):
        """A user's namespace and a digest leave less to find."""
        self.assertEqual(self.findings([]), set(EXPLAINED))
        self.assertEqual(self.findings(OPTIONS), set(EXPLAINED) - SETTLED)


if __name__ == "__main__":
    unittest.main(verbosity=2)
