"""Real parameter servers for tests, on loopback ports."""

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
import time
import unittest

from free_ports import free_port


def binary(path):
    """A program of the build: WEIR_BIN_DIR, or beside this test's runfiles."""
    root = os.environ.get("WEIR_BIN_DIR") or os.getcwd()
    found = os.path.join(root, path)
    if not os.path.exists(found):
        raise FileNotFoundError(f"{found}: set WEIR_BIN_DIR")
    return found


def weir_cli(*arguments, check=False):
    """`weir ARGUMENTS` to its end, with what it printed."""
    return subprocess.run(
        [binary("deploy/cli/weir_cli"), *arguments],
        env=dict(os.environ, WEIR_BIN_DIR=binary(".")),
        capture_output=True,
        text=True,
        check=check,
    )


# The servers, and every client that a test starts, belong to one job.
if not any(os.environ.get(n) for n in ("WEIR_TLS_DIR", "WEIR_INSECURE")):
    os.environ.setdefault("WEIR_SECRET", secrets.token_hex(32))


class Servers:
    """`count` empty weir_ps processes; a context manager.

    They keep checkpoints in `checkpoint_root`; with None they keep none.
    """

    def __init__(self, count=1, checkpoint_root=None):
        root = ["--checkpoint_root", checkpoint_root] if checkpoint_root else []
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(count)]
        self.log = tempfile.TemporaryFile()  # noqa: SIM115, __exit__ closes it
        self.processes = [
            subprocess.Popen(
                [
                    binary("server/ps/weir_ps"),
                    "--cluster",
                    "ps=" + ",".join(self.addresses),
                    "--task_index",
                    str(index),
                    *root,
                ],
                stdout=self.log,
                stderr=self.log,
            )
            for index in range(count)
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
        self.log.close()

    def environment(self, rank=0, size=1):
        """Of a script that is worker `rank`; see weir.connect."""
        return dict(
            os.environ,
            PYTHONPATH=os.pathsep.join(sys.path),
            WEIR_PS=",".join(self.addresses),
            RANK=str(rank),
            WORLD_SIZE=str(size),
            PYTHONUNBUFFERED="1",
            OMP_NUM_THREADS="1",
        )


class TorchTestCase(unittest.TestCase):
    """Each test is a worker that has begun `weir.torch.init`."""

    server_count = 2

    def setUp(self):
        self.servers = Servers(self.server_count)
        self.addCleanup(self.servers.__exit__)
        import weir.torch  # PyTorch, which takes long and few tests need

        weir.torch.init(ps=self.servers.addresses)
        self.addCleanup(self.close)

    def close(self):
        import weir.torch

        optimizer = weir.torch._context.context().optimizer
        if optimizer is not None:
            optimizer._client.close()


def run_scripts(servers, script, size, arguments=(), timeout=120):
    """Runs `size` copies of a script's text as the workers; their outputs."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            env=servers.environment(rank, size),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        outputs = [worker.communicate(timeout=timeout)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    for worker, output in zip(workers, outputs):
        if worker.returncode != 0:
            raise AssertionError(f"code {worker.returncode}:\n{output}")
    return outputs


def wait_for(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the condition did not come to hold")
        time.sleep(0.02)
