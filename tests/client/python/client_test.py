"""weir.connect and its client, with real servers."""

import array
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import numpy as np

import weir
from servers import Servers, run_scripts
from weir import _environment


def values(count=300):
    return np.arange(count, dtype=np.float32)


class OfNumpy24(np.ndarray):
    """Makes a float of itself only without dimensions, as NumPy 2.4 does."""

    def __float__(self):
        if self.ndim > 0:
            raise TypeError("only 0-dimensional arrays can be converted")
        return super().__float__()


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.servers = Servers(2)
        self.addCleanup(self.servers.__exit__)

    def connect(self, **options):
        client = weir.connect(
            self.servers.addresses, block_elements=64, **options
        )
        self.addCleanup(client.close)
        return client

    def declared(self, **options):
        client = self.connect()
        client.declare(
            {"a": values().reshape(10, 30), "b": np.zeros(77)},
            optimizer=weir.SGD(lr=1.0),
            **options,
        )
        return client

    def test_pushes_and_pulls_in_place(self):
        client = self.declared()
        seen = client.values["a"]
        np.testing.assert_array_equal(seen, values().reshape(10, 30))
        self.assertTrue(client.push({"b": np.full(77, 2.0)}))
        self.assertEqual(client.values["b"][0], 0.0)
        client.pull()
        self.assertEqual(client.values["b"][0], -2.0)
        client.push_pull({"a": np.ones((10, 30), np.float32)})
        self.assertEqual(seen[9, 29], 298.0)  # the same memory
        self.assertEqual(client.pushes, 2)
        with self.assertRaises(ValueError):
            seen[0, 0] = 1.0

    def test_reports_are_checked_and_go_nowhere_without_a_chief(self):
        client = self.connect()
        with self.assertRaises(weir.Closed):
            client.report(loss=1.0)
        client = self.declared()
        client.report(0.5)
        client.report(
            loss=np.float32(0.5), examples=np.int64(3), accuracy=np.ones((1,))
        )
        client.report(loss=float("nan"), **{"val/top-5": 1})
        client.report(loss=np.ones((1, 1)).view(OfNumpy24))
        for bad, text in (
            ({"loss": "0.5"}, "'loss' is '0.5', not a number"),
            ({"loss": [1, 2]}, "not a number"),
            ({"accuracy": None}, "'accuracy' is None"),
            ({"accuracy": np.ones(2)}, "not a number"),
            ({"examples": -1}, "examples is -1, not a count"),
            ({"examples": 0.5}, "examples is 0.5"),
            ({"a b": 1}, "the metric 'a b' needs a name"),
            ({"x" * 65: 1}, "needs a name"),
            ({"step": 1}, "'step' has a name that Weir writes itself"),
            ({f"m{i}": i for i in range(33)}, "33 metrics; at most 32"),
        ):
            with self.assertRaisesRegex(weir.InvalidArgument, text):
                client.report(**bad)
        begin = time.monotonic()
        for _ in range(10000):
            client.report(loss=0.5, examples=32)
        self.assertLess(time.monotonic() - begin, 2)  # it calls nobody
        client.close()
        with self.assertRaises(weir.Closed):
            client.report(loss=1.0)

    def test_gradients_written_in_place_are_not_copied(self):
        client = self.declared()
        mine = client.gradients["b"]
        mine[:] = 3.0
        client.push_pull({"b": mine})
        self.assertEqual(client.values["b"][76], -3.0)
        client.gradients["a"][:] = 0.0
        client.push_pull()
        self.assertEqual(client.values["b"][76], -6.0)

    def test_takes_what_has_the_buffer_protocol_or_dlpack(self):
        client = self.declared()
        client.push_pull({"b": array.array("f", [1.0] * 77)})
        client.push_pull({"b": [1] * 77})

        class Foreign:
            def __init__(self, inner):
                self._inner = inner

            def __dlpack__(self, **arguments):
                return self._inner.__dlpack__(**arguments)

            def __dlpack_device__(self):
                return self._inner.__dlpack_device__()

        client.push_pull({"b": Foreign(np.ones(77, np.float32))})
        out = np.empty(77, np.float64)
        client.pull(out={"b": out})
        np.testing.assert_array_equal(out, np.full(77, -3.0))

    def test_a_push_is_applied_once(self):
        client = self.declared()
        for sequence in (0, 0, 1):
            client.push({"b": np.ones(77)}, sequence=sequence)
        client.pull()
        self.assertEqual(client.values["b"][0], -2.0)
        self.assertFalse(client.push({"b": np.ones(77)}, sequence=0))
        with self.assertRaisesRegex(
            weir.InvalidArgument, "sequence number 7 .* 2"
        ):
            client.push({"b": np.ones(77)}, sequence=7)

    def test_groups_and_settings(self):
        client = self.connect()
        client.declare(
            {"a": np.zeros(3), "b": np.zeros(()), "seen": np.zeros(2)},
            optimizer=[weir.SGD(lr=1.0), weir.SGD(lr=0.5)],
            groups={"b": 1},
            buffers=["seen"],
        )
        ones = {"a": np.ones(3), "b": np.ones(()), "seen": [0.1, 0.2]}
        client.push_pull(ones)
        self.assertEqual(client.values["a"][0], -1.0)
        self.assertEqual(client.values["b"], -0.5)
        self.assertEqual(client.values["seen"][1], np.float32(0.2))
        client.push_pull(
            {"b": np.ones(())}, settings={1: weir.Settings(lr=0.25)}
        )
        self.assertEqual(client.values["b"], -0.75)
        client.push_pull({"b": np.ones(())}, weight=0.0)
        self.assertEqual(client.values["b"], -0.75)
        self.assertEqual(client.pushes, 3)

    def test_an_out_that_takes_no_values_keeps_the_push_back(self):
        client = self.declared()
        read_only = np.zeros(77)
        read_only.flags.writeable = False
        for out, error in (
            ({"b": np.zeros(3)}, r"'b' is \[77\], .* is \[3\]"),
            ({"c": np.zeros(77)}, "named 'c'"),
            ({"b": np.zeros(77, np.int32)}, "float32 cannot be taken for int"),
            ({"b": read_only}, "read-only"),
        ):
            with self.assertRaisesRegex(weir.InvalidArgument, error):
                client.push_pull({"b": np.ones(77)}, out=out)
            with self.assertRaisesRegex(weir.InvalidArgument, error):
                client.pull(out)
        self.assertEqual(client.pushes, 0)

    def test_errors_name_what_is_wrong(self):
        client = self.declared()
        with self.assertRaisesRegex(
            weir.InvalidArgument, r"'a' is \[10, 30\], .* is \[4\]"
        ):
            client.push({"a": np.zeros(4)})
        with self.assertRaisesRegex(weir.InvalidArgument, "named 'c'"):
            client.push({"c": np.zeros(4)})
        with self.assertRaisesRegex(weir.InvalidArgument, "'a'"):
            client.push({"a": np.zeros((10, 30), np.complex64)})
        self.assertEqual(client.pushes, 0)  # nothing of it left
        other = self.connect()
        with self.assertRaisesRegex(
            weir.WrongLayout,
            r"'a' is \[10, 30\] on the server, \[10, 4\] here",
        ):
            other.declare(
                {"a": np.zeros((10, 4)), "b": np.zeros(77)},
                optimizer=weir.SGD(lr=1.0),
            )
        with self.assertRaisesRegex(weir.InvalidArgument, "'c'"):
            self.connect().declare(
                {"a": np.zeros(1)}, optimizer=weir.SGD(lr=1.0), groups={"c": 1}
            )
        for options, error in (
            ({"optimizer": "sgd"}, "'sgd'.*weir.SGD"),
            ({"optimizer": [weir.SGD]}, "class.*weir.SGD"),
            ({"optimizer": []}, "no optimizer"),
            ({"optimizer": weir.SGD(lr=1.0), "mode": "fast"}, "'fast'.*ssp"),
        ):
            with self.assertRaisesRegex(weir.InvalidArgument, error):
                self.connect().declare({"a": np.zeros(1)}, **options)
        bad = np.zeros(77)
        bad[3] = np.nan
        with self.assertRaisesRegex(weir.NonFinite, "'b' has NaN"):
            client.push_pull({"b": bad})
        client.push_pull({"b": np.zeros(77)})  # it goes on

    def test_numbers_that_no_optimizer_takes_do_not_leave(self):
        client = self.declared()
        gradient = {"b": np.ones(77)}
        for bad in (
            {"weight": -1.0},
            {"settings": {0: weir.Settings(lr=float("nan"))}},
            {"settings": {0: weir.Settings(momentum=0.5)}},
        ):
            with self.assertRaises(weir.InvalidArgument):
                client.push(gradient, **bad)
        self.assertTrue(client.push(gradient))
        self.assertEqual(client.pushes, 1)

    def test_after_close(self):
        client = self.declared()
        kept = client.values["a"]
        client.close()
        client.close()
        self.assertEqual(kept[0, 1], 1.0)
        for call in (client.pull, client.push, client.status):
            with self.assertRaisesRegex(weir.Closed, "closed"):
                call()
        with self.assertRaisesRegex(weir.Closed, "declare first"):
            self.connect().pull()

    def test_it_knows_its_place(self):
        client = self.declared()
        self.assertEqual((client.rank, client.size), (0, 1))
        other = self.connect(rank=2, worker_count=5)
        self.assertEqual((other.rank, other.size), (2, 5))

    def test_status(self):
        client = self.declared()
        client.push()
        status = client.status()
        self.assertEqual(
            [server["address"] for server in status], self.servers.addresses
        )
        self.assertEqual([s["version_max"] for s in status], [1, 1])

    def test_a_lost_server_is_named(self):
        client = self.declared()
        self.servers.processes[1].kill()
        begin = time.monotonic()
        with self.assertRaisesRegex(weir.ServerLost, self.servers.addresses[1]):
            while True:
                client.push_pull()
        self.assertLess(time.monotonic() - begin, 20)

    def test_nobody_there(self):
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))  # and does not listen
            address = f"127.0.0.1:{nobody.getsockname()[1]}"
            with self.assertRaisesRegex(weir.Unavailable, address):
                weir.connect([address], start_wait=0.5)

    def test_another_secret_is_refused(self):
        with (
            mock.patch.dict(os.environ, WEIR_SECRET="s" * 32),
            self.assertRaisesRegex(weir.Refused, self.servers.addresses[0]),
        ):
            self.connect()

    def test_without_a_secret_there_is_no_client(self):
        with (
            mock.patch.dict(os.environ, WEIR_SECRET=""),
            self.assertRaisesRegex(weir.InvalidArgument, "WEIR_SECRET"),
        ):
            self.connect()

    def test_a_newer_process_replaces_the_older(self):
        older = self.declared()
        self.declared()
        with self.assertRaises(weir.Replaced):
            older.push()

    def test_ctrl_c_ends_a_wait_within_a_second(self):
        client = self.connect(worker_count=2)
        client.declare(
            {"a": np.zeros(3)}, optimizer=weir.SGD(lr=1.0), mode="sync"
        )
        times = []

        def interrupt():
            time.sleep(0.5)
            times.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            client.push_pull()  # the other worker never comes
        self.assertLess(time.monotonic() - times[0], 1.0)
        thread.join()

    def test_other_threads_run_while_it_waits(self):
        client = self.connect(worker_count=2)
        client.declare(
            {"a": np.zeros(3)}, optimizer=weir.SGD(lr=1.0), mode="sync"
        )
        raised = []

        def push():
            try:
                client.push_pull()
            except weir.WeirError as error:
                raised.append(error)

        waiting = threading.Thread(target=push, daemon=True)
        waiting.start()
        time.sleep(0.3)
        for call in (client.pull, client._core.end_push, client.close):
            with self.assertRaisesRegex(weir.Closed, "another thread"):
                call()
        other = self.connect(rank=1, worker_count=2)
        other.declare(
            {"a": np.zeros(3)}, optimizer=weir.SGD(lr=1.0), mode="sync"
        )
        other.push({"a": np.ones(3)})
        waiting.join(20)
        self.assertFalse(waiting.is_alive())
        self.assertEqual(raised, [])

    def test_a_forked_child_gets_an_error(self):
        client = self.declared()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                client.push()
            except weir.Forked as error:
                os.write(write, str(error).encode())
            del client
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertIn(b"spawn", os.read(read, 1000))
        client.push_pull()  # the parent's goes on

    def test_workers_end_after_different_numbers_of_pushes(self):
        script = """
import os, numpy as np, weir
rank = int(os.environ["RANK"])
with weir.connect() as client:
    client.declare({"w": np.zeros(4)}, optimizer=weir.SGD(lr=1.0), mode="sync")
    for step in range(5 + 3 * rank):
        client.push_pull({"w": np.full(4, 1.0 + 2 * rank)})
    print(client.values["w"][0])
"""
        outputs = run_scripts(self.servers, script, 2)
        # Five steps of mean 2, then three of rank 1 alone.
        self.assertEqual(float(outputs[0]), -10.0)
        self.assertEqual(float(outputs[1]), -19.0)

    def test_an_unclosed_client_finishes_as_the_script_ends(self):
        script = """
import os, sys, numpy as np, weir
client = weir.connect()
client.declare({"w": np.zeros(4)}, optimizer=weir.SGD(lr=1.0), mode="sync")
for step in range(2 + int(os.environ["RANK"])):
    client.push_pull({"w": np.ones(4)})
print(client.values["w"][0])
"""
        outputs = run_scripts(self.servers, script, 2)
        self.assertEqual([float(out) for out in outputs], [-2.0, -3.0])


class PackageTest(unittest.TestCase):
    def test_its_version_is_that_of_the_repository(self):
        root = pathlib.Path(__file__).absolute().parents[3]
        version = (root / "VERSION").read_text().strip()
        self.assertEqual(weir.__version__, version)

    def test_the_command_needs_a_wheel_and_says_so(self):
        result = subprocess.run(
            [sys.executable, "-m", "weir", "wrong"],
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertIn("the command is ./weir", result.stderr)


class EnvironmentTest(unittest.TestCase):
    def test_servers_that_are_given_are_those_of_torchruns_worker(self):
        given = ["10.0.0.1:2222"]
        around = {"RANK": "2", "WORLD_SIZE": "4", "WEIR_CHIEF": "10.0.0.2:1"}
        with mock.patch.dict(os.environ, around):
            found = _environment.cluster(given)
            self.assertEqual((found["rank"], found["worker_count"]), (2, 4))
            self.assertEqual(found["ps"], given)
            self.assertEqual(found["chief"], "10.0.0.2:1")
            found = _environment.cluster(
                given, rank=0, worker_count=1, chief=""
            )
            self.assertEqual((found["rank"], found["worker_count"]), (0, 1))
            self.assertEqual(found["chief"], "")
        found = _environment.cluster(given)
        self.assertEqual((found["rank"], found["worker_count"]), (0, 1))

    def connect(self, **variables):
        """What a script that connects says."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("TF_CONFIG", "WEIR_PS", "WEIR_CLUSTER")
        }
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        return subprocess.run(
            [sys.executable, "-c", "import weir; weir.connect()"],
            env=environment | variables,
            capture_output=True,
            text=True,
            check=False,
        ).stderr

    def test_without_a_cluster_it_says_what_to_set(self):
        self.assertIn("set TF_CONFIG", self.connect())

    def test_an_evaluator_is_no_worker(self):
        said = self.connect(
            WEIR_CLUSTER="ps=a:1;worker=b:1",
            WEIR_TASK_TYPE="evaluator",
            WEIR_TASK_INDEX="0",
        )
        self.assertIn("InvalidArgument: this task is evaluator/0", said)


if __name__ == "__main__":
    unittest.main()
