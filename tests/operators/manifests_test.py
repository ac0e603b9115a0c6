"""Rendered manifests, by the judgement of others.

WEIR_OPERATOR_TOOLS is a virtual environment with deploy/operator_tools.txt;
`./weir test --full` makes it. This file runs with that environment's Python.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import yaml

BIN_DIR = os.environ.get("WEIR_BIN_DIR", ".")
TOOLS = os.environ.get("WEIR_OPERATOR_TOOLS", "")
JOB = pathlib.Path(__file__).parents[2] / "examples/digits.textproto"
# The oldest version whose schema has all that is written, and one that has not.
OLDEST, TOO_OLD, NEWEST = "1.28", "1.25", "1.37"
CORE_GROUPS = {"v1", "batch/v1", "networking.k8s.io/v1", "policy/v1"}
# What checkov finds and why it stays.
EXPLAINED = {
    "CKV_K8S_11": "no CPU limit: a task that is throttled in the middle of a "
    "step holds up all others",
    "CKV_K8S_15": "IfNotPresent: an image that was loaded onto the nodes has "
    "no registry to ask",
    "CKV_K8S_21": "the namespace is the user's: --namespace",
    "CKV_K8S_43": "the image's digest is the user's: --image NAME@sha256:...",
}


def render(target: str) -> str:
    """A job with every role."""
    return subprocess.run(
        [f"{BIN_DIR}/deploy/cli/weir_cli", "render", target, str(JOB)]
        + ["--ps=2", "--workers=2"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def documents(target: str) -> list[dict]:
    """The same, parsed."""
    return [d for d in yaml.safe_load_all(render(target)) if d]


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

    def test_core_kinds_are_valid_and_need_their_version(self):
        """Unknown fields and wrong types are errors."""
        for target in "k8s", "jobset", "volcano", "tfjob":
            core = [
                d for d in documents(target) if d["apiVersion"] in CORE_GROUPS
            ]
            for version in OLDEST, NEWEST:
                with self.subTest(target=target, version=version):
                    self.assertEqual(self.validate(version, core), "")
        jobs = [d for d in documents("k8s") if d["kind"] == "Job"]
        self.assertIn("podReplacementPolicy", self.validate(TOO_OLD, jobs))
        jobs[0]["spec"]["completionz"] = 1
        self.assertIn("completionz", self.validate(NEWEST, jobs))

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

        class Answer:
            data = json.dumps(tfjob)

        client = ApiClient()
        model = client.deserialize(Answer, "KubeflowOrgV1TFJob")
        self.assertEqual(
            lost(tfjob, client.sanitize_for_serialization(model)), []
        )

    def test_checkov_finds_nothing_that_is_not_explained(self):
        """Its findings have no severities without its service: all count."""
        (self.folder / "k8s.yaml").write_text(render("k8s"))
        done = subprocess.run(
            [f"{TOOLS}/bin/checkov", "--skip-download", "--compact", "--quiet"]
            + ["--framework", "kubernetes", "--output", "json"]
            + ["-f", str(self.folder / "k8s.yaml")],
            capture_output=True,
            text=True,
            check=False,
        )
        found = json.loads(done.stdout)["results"]["failed_checks"]
        self.assertEqual({check["check_id"] for check in found}, set(EXPLAINED))


if __name__ == "__main__":
    unittest.main(verbosity=2)
