"""Jobs that `weir render k8s` prints, as pods: trained, killed, evicted.

With WEIR_IMAGE, an archive that `./weir image` made, pods are containers of
podman. Without it they are processes, and what only containers can show is
counted as skipped.
"""

import itertools
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time
import unittest

import pods

JOB = """
name: "digits" seed: 3
model {
  layer { name: "flat" flatten {} }
  layer { name: "hidden" dense { units: 8 } }
  layer { name: "relu" relu {} }
  layer { name: "logits" dense { units: 10 } }
  loss { softmax_cross_entropy {} }
}
data { train { digits { count: 2000 } } }
train { batch_size: 16 log_every_steps: 5 steps: 600 }
optimizer { adam {} }
schedule { learning_rate: 0.002 }
update { sync { contributions: 4 } }
limits { block_elements: 1024 }
checkpoint { every_steps: 100 }
"""
STEPS = 600
BIN_DIR = os.path.abspath(os.environ.get("WEIR_BIN_DIR", "."))
IMAGE = os.environ.get("WEIR_IMAGE", "")
# How many moments of a disruption are drawn, and from which seed.
MOMENTS = int(os.environ.get("WEIR_POD_MOMENTS", "4"))
SEED = int(os.environ.get("WEIR_POD_SEED", "1"))


def weir(*words: str) -> subprocess.CompletedProcess:
    """Runs the command line."""
    return subprocess.run(
        [f"{BIN_DIR}/deploy/cli/weir_cli", *words],
        env=dict(os.environ, WEIR_BIN_DIR=BIN_DIR),
        capture_output=True,
        text=True,
        check=False,
    )


class Run:
    """One job with its pods; a context that ends them."""

    def __init__(
        self,
        job: str = JOB,
        *flags: str,
        secrets: dict[str, dict] | None = None,
    ):
        """Renders `job`, or with "" the program that `flags` name.

        `secrets` are beside or in place of the job's own one.
        """
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir_pods_"))
        words = ["render", "k8s", "--ps=2", "--workers=2"]
        if job:
            (self.folder / "digits.textproto").write_text(job)
            words.append(str(self.folder / "digits.textproto"))
        rendered = weir(*words, *flags)
        if rendered.returncode != 0:
            raise AssertionError(rendered.stderr)
        self.jobs = pods.Jobs(rendered.stdout)
        own = {"digits-secret": {"WEIR_SECRET": weir("secret").stdout}}
        self.volumes = pods.Volumes(
            self.folder, self.jobs, {**own, **(secrets or {})}
        )

    def __enter__(self):
        """Makes the host."""
        if IMAGE:
            host = pods.PodmanHost(IMAGE, self.volumes)
        else:
            host = pods.ProcessHost(BIN_DIR, self.volumes)
        self.host = host
        self.pods = pods.Controller(host, self.jobs)
        return self

    def __exit__(self, kind, *_):
        """Shows the logs of a failure, and removes everything."""
        if kind is not None:
            for pod in self.jobs.pods:
                print(f"--- {pod.name} {self.pods.codes[pod]}")
                print("\n".join(self.host.log(pod).splitlines()[-12:]))
        self.host.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def step(self) -> int:
        """The last step of the curve."""
        path = self.volumes.run / "train.jsonl"
        if not path.exists():
            return 0
        lines = path.read_text().splitlines()
        if not lines:
            return 0
        return int(lines[-1].split('"step":')[1].split(",")[0].strip(' "}'))

    def saved_step(self) -> int:
        """The step of the newest committed checkpoint."""
        manifests = self.volumes.run.glob("checkpoints/ckpt-*/manifest.json")
        steps = [int(path.parent.name.split("-")[1]) for path in manifests]
        return max(steps, default=0)

    def wait_for_step(self, step: int) -> int:
        """Waits until the job has come so far; returns where it is."""

        pods.wait_until(lambda: self.step() >= step, f"at step {step}")
        return self.step()

    def model(self) -> bytes:
        """The bytes of the trained model."""
        name = (self.volumes.run / "DONE").read_text().strip()
        out = self.folder / "model.safetensors"
        done = weir(
            "checkpoint",
            "export",
            str(self.volumes.run / "checkpoints" / name),
            "--out",
            str(out),
        )
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return out.read_bytes()


def certificates(name: str, namespace: str) -> dict[str, dict]:
    """The Secrets of a job's roles, as cert-manager makes them."""
    with tempfile.TemporaryDirectory() as folder:

        def openssl(*words: str):
            subprocess.run(
                ["openssl", *words],
                cwd=folder,
                check=True,
                capture_output=True,
            )

        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        openssl(
            *["req", "-x509", *key, "-nodes", "-subj", "/CN=ca", "-days", "2"],
            *["-keyout", "ca.key", "-out", "ca.crt"],
        )
        secrets = {}
        for role in "ps", "chief", "worker":
            uri = f"spiffe://cluster.local/ns/{namespace}/sa/{name}-{role}"
            openssl(
                *["req", "-x509", *key, "-nodes", "-subj", f"/CN={role}"],
                *["-CA", "ca.crt", "-CAkey", "ca.key", "-days", "2"],
                *["-addext", f"subjectAltName=URI:{uri}"],
                *["-addext", "basicConstraints=critical,CA:FALSE"],
                *["-keyout", "tls.key", "-out", "tls.crt"],
            )
            secrets[f"{name}-{role}-tls"] = {
                file: (pathlib.Path(folder) / file).read_text()
                for file in ("ca.crt", "tls.crt", "tls.key")
            }
        return secrets


class PodsTest(unittest.TestCase):
    """What the issue of a cluster has to show."""

    expected: bytes = b""

    @classmethod
    def setUpClass(cls):
        """Trains undisturbed."""
        print("pods are", "containers of podman" if IMAGE else "processes")
        with Run() as run:
            begin = time.monotonic()
            run.pods.start()
            run.wait_for_step(1)
            first = time.monotonic() - begin
            print(f"first step {first:.2f} s after the first pod's start")
            run.pods.run_to_end()
            assert run.pods.failed is None, run.pods.failed
            assert all(c == [0] for c in run.pods.codes.values())
            cls.expected = run.model()

    def finish(self, run: Run) -> None:
        """The job ends with all codes 0, and with the bits of `expected`."""
        run.pods.run_to_end()
        self.assertIsNone(run.pods.failed)
        self.assertEqual(run.model(), self.expected)

    def test_every_task_is_ready_while_it_runs(self):
        """The kubelet's probe, and a task that is not there any more."""
        with Run(JOB.replace("steps: 600", "steps: 1000000")) as run:
            run.pods.start()
            run.wait_for_step(1)
            for pod in run.jobs.pods:
                self.assertTrue(run.host.probe(pod), pod.name)
            run.pods.evict(run.jobs.pods)
            for pod in run.jobs.pods:
                self.assertFalse(run.host.probe(pod), pod.name)
            self.assertGreater(run.saved_step(), 0)

    def test_a_crash_of_each_role_is_mended_in_place(self):
        """A program that is killed is started again by its own task."""
        for role in "ps", "chief", "worker":
            with self.subTest(role), Run() as run:
                run.pods.start()
                run.wait_for_step(100)
                run.pods.kill_program(run.jobs.of_role(role)[-1])
                self.finish(run)
                for codes in run.pods.codes.values():
                    self.assertEqual(codes, [0])  # no pod was replaced

    def test_a_ps_and_the_chief_crash_before_the_first_checkpoint(self):
        """Nothing can be restored, and the job begins anew."""
        with Run() as run:
            run.pods.start()
            run.wait_for_step(5)
            run.pods.kill_program(run.jobs.of_role("ps")[0])
            run.pods.kill_program(run.jobs.of_role("chief")[0])
            self.finish(run)

    def test_evictions_lose_nothing(self):
        """One pod of each role, and all at once, at random moments."""
        moments = random.Random(SEED)
        roles = ["ps", "chief", "worker", ""]
        for count in range(MOMENTS):
            role = roles[count % len(roles)]
            at = moments.randrange(10, STEPS - 20)
            with self.subTest(f"{role or 'all'} at {at}"), Run() as run:
                run.pods.start()
                before = run.wait_for_step(at)
                victims = run.jobs.of_role(role)[-1:] or run.jobs.pods
                run.pods.evict(victims)
                # A worker's end stops nobody, so nothing need be saved.
                if role != "worker":
                    pods.wait_until(
                        lambda run=run, before=before: (
                            run.saved_step() >= before
                        ),
                        f"saved: step {before}",
                    )
                self.finish(run)
                for pod in victims:
                    self.assertIn(run.pods.codes[pod][0], (0, 138, 143))

    def test_tasks_prove_who_they_are_by_certificates(self):
        """With the Secrets that the head of the file names."""
        flags = ["--tls", "--namespace=ml"]
        with Run(JOB, *flags, secrets=certificates("digits", "ml")) as run:
            run.pods.start()
            self.finish(run)

    def test_pods_start_in_every_order(self):
        """No role waits for another to be there first."""
        for order in itertools.permutations(["ps", "chief", "worker"]):
            with self.subTest(order), Run() as run:
                run.pods.start(
                    [pod for role in order for pod in run.jobs.of_role(role)]
                )
                self.finish(run)

    def test_a_wrong_job_file_fails_the_job(self):
        """No operator starts pods again that cannot do any better."""
        with Run() as run:
            for document in run.jobs.documents:
                if document["kind"] == "ConfigMap":
                    document["data"]["job.textproto"] += "train { stepz: 1 }"
            run.pods.start()
            run.pods.run_to_end()
            self.assertRegex(run.pods.failed or "", "ended with 2")

    def test_containers_are_confined(self):
        """The image's user, a root that cannot be written."""
        if not IMAGE:
            self.skipTest("only containers show this; set WEIR_IMAGE")
        with Run() as run:
            run.pods.start()
            run.wait_for_step(1)
            for pod in run.jobs.pods:
                main = run.host.main_pid(pod)
                status = pathlib.Path(f"/proc/{main}/status").read_text()
                self.assertRegex(status, r"Uid:\t10001\t10001")
                self.assertRegex(status, r"CapEff:\t0+\n")
                self.assertRegex(status, r"NoNewPrivs:\t1")
                mounts = pathlib.Path(f"/proc/{main}/mounts").read_text()
                root = [m for m in mounts.splitlines() if m.split()[1] == "/"]
                self.assertRegex(root[-1].split()[3], r"^ro")
            self.finish(run)


if __name__ == "__main__":
    if IMAGE and (why := pods.podman_missing()):
        raise SystemExit(f"podman never ran: {why}")
    unittest.main(verbosity=2)
