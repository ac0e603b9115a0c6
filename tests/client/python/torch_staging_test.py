"""How gradients leave a GPU and values come back; with a GPU of lists."""

import random
import unittest
from unittest import mock

import numpy as np
import torch

from weir.torch._gpu_copies import GpuCopies
from weir.torch._staging import Staging


class FakeGpu:
    """Does each copy as late as its stream may, in a random order of streams.

    `compute` has what the caller enqueued; it never runs by itself before a
    copy that follows it.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.compute, self.downs, self.ups = [], [], []

    def enqueue(self, work):
        self.compute.append(work)

    def owns(self, tensor):
        return True

    def down(self, to, tensor):
        event = FakeEvent(self, self.mark())
        self.downs.append((event, to, tensor))
        return event

    def up(self, tensor, source, at_once=False):
        self.ups.append((None if at_once else self.mark(), tensor, source))

    def join(self):
        self.run_compute(self.mark())
        while self.ups:
            self.run_up()

    def mark(self):
        mark = []
        self.compute.append(mark)
        return mark

    def run_compute(self, mark):
        while any(work is mark for work in self.compute):
            work = self.compute.pop(0)
            if callable(work):
                work()

    def run_up(self):
        mark, tensor, source = self.ups.pop(0)
        self.run_compute(mark)
        tensor.copy_(source)

    def run_something(self):
        """A step of one of the streams, or of none."""
        stream = self.random.randrange(4)
        if stream == 0 and self.downs:
            event, to, tensor = self.downs.pop(0)
            self.run_compute(event.mark)
            to.copy_(tensor)
            event.has_passed = True
        elif stream == 1 and self.ups:
            self.run_up()
        elif stream == 2 and self.compute:
            work = self.compute.pop(0)
            if callable(work):
                work()


class FakeEvent:
    def __init__(self, gpu, mark):
        self.gpu = gpu
        self.mark = mark
        self.has_passed = False

    def query(self):
        self.gpu.run_something()
        return self.has_passed


class FakeServers:
    """Adds what has left; values are there a while later, in order."""

    def __init__(self, seed, values, gradients):
        self.random = random.Random(seed)
        self.values, self.gradients = values, gradients
        self.left = []
        self.here = set()

    def ready(self, number):
        assert number not in self.left
        self.left.append(number)

    def answer(self):
        waiting = [n for n in self.left if n not in self.here]
        if waiting:
            self.values[waiting[0]] += self.gradients[waiting[0]]
            self.here.add(waiting[0])
        return bool(waiting)

    def has_values(self, number):
        if self.random.random() < 0.3:
            self.answer()
        return number in self.here

    def wait(self):
        while self.answer():
            pass


COUNT = 6


class TorchStagingTest(unittest.TestCase):
    def make(self, seed):
        values = [np.full(3, float(n), np.float32) for n in range(COUNT)]
        gradients = [np.zeros(3, np.float32) for _ in range(COUNT)]
        tensors = [torch.full((3,), float(n)) for n in range(COUNT)]
        gpu = FakeGpu(seed)
        staging = Staging(tensors, values, gradients, gpu)
        return staging, gpu, FakeServers(seed, values, gradients), tensors

    def backward(self, staging, gpu, servers, tensors, factor):
        """Sends each tensor's gradient; what backward read of each one."""
        seen = {}
        for number in reversed(range(COUNT)):
            grad = torch.zeros(3)

            def compute(grad=grad, number=number):
                seen[number] = tensors[number].tolist()
                grad.fill_(factor * (number + 1))

            gpu.enqueue(compute)
            staging.send(
                [(number, grad)],
                servers.ready,
                take_back=set(range(COUNT)) - {2},
            )
        return seen

    def test_steps_read_old_values_and_bring_new_ones(self):
        early = 0
        for seed in range(200):
            staging, gpu, servers, tensors = self.make(seed)
            old = [float(number) for number in range(COUNT)]
            for factor in (10.0, 100.0, 1000.0):
                servers.left, servers.here = [], set()
                seen = self.backward(staging, gpu, servers, tensors, factor)
                staging.send_rest(servers.ready, servers.has_values)
                early += len(staging._taken)
                self.assertEqual(servers.left, list(reversed(range(COUNT))))
                self.assertNotIn(2, staging._taken)
                servers.wait()
                staging.take_rest(range(COUNT))
                for number in range(COUNT):
                    self.assertEqual(seen[number], [old[number]] * 3)
                    old[number] += factor * (number + 1)
                    self.assertEqual(
                        tensors[number].tolist(), [old[number]] * 3
                    )
        self.assertGreater(early, 0)

    def test_what_has_left_is_not_taken_twice(self):
        staging, _, servers, tensors = self.make(1)
        staging.send([(0, torch.ones(3))], servers.ready, take_back={0})
        staging.send_rest(servers.ready, servers.has_values)
        servers.wait()
        staging.take_rest([0])
        servers.values[0][:] = 7.0
        staging.take_rest([0])  # of a later step
        self.assertEqual(tensors[0].tolist(), [7.0] * 3)

    def test_a_step_after_an_interrupted_one_takes_all(self):
        staging, gpu, servers, tensors = self.make(1)
        staging.send([(0, torch.ones(3))], servers.ready, take_back={0})
        while 0 not in staging._taken:
            staging._pass_on(servers.ready)
            staging._take_one(servers.has_values)
        gpu.join()
        # The wait does not come back, and the next step pushes nothing.
        servers.values[0][:] = 7.0
        staging.send_rest(servers.ready, servers.has_values)
        staging.take_rest([0])
        self.assertEqual(tensors[0].tolist(), [7.0] * 3)

    def test_giving_up_leaves_the_rest_out(self):
        staging, _, servers, _ = self.make(3)
        staging.send([(n, torch.ones(3)) for n in range(COUNT)], servers.ready)
        left = list(servers.left)
        staging.give_up()
        staging.send_rest(servers.ready, servers.has_values)
        self.assertEqual(servers.left, left)


class GpuCopiesTest(unittest.TestCase):
    """On tensors of the host; what is a GPU's does nothing."""

    def setUp(self):
        self.addCleanup(mock.patch.stopall)
        for name in ("Event", "Stream", "current_stream", "stream"):
            mock.patch.object(torch.cuda, name, mock.MagicMock()).start()
        self.recorded = []
        mock.patch.object(
            torch.Tensor,
            "record_stream",
            lambda tensor, _: self.recorded.append(tensor),
        ).start()
        self.copies = GpuCopies([])

    def test_gradients_become_float32(self):
        to = torch.zeros(2, 3)
        half = torch.ones(2, 3, dtype=torch.bfloat16, requires_grad=True)
        self.copies.down(to, half)
        self.assertEqual(to.tolist(), torch.ones(2, 3).tolist())

    def test_what_is_read_is_not_reused_before(self):
        for dtype in (torch.bfloat16, torch.float32):
            tensor = torch.ones(2, 3, dtype=dtype)
            self.copies.down(torch.zeros(2, 3), tensor)
            self.assertIs(self.recorded.pop(), tensor)

    def test_values_go_into_parameters_that_train(self):
        for at_once in (False, True):
            parameter = torch.nn.Parameter(torch.zeros(3))
            self.copies.up(parameter, torch.ones(3), at_once)
            self.copies.join()
            self.assertEqual(parameter.tolist(), [1.0] * 3)


if __name__ == "__main__":
    unittest.main()
