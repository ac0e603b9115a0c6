"""A linear model trained through plain gRPC, without any code of Weir's.

    pip install grpcio grpcio-tools numpy
    export WEIR_SECRET=$(weir secret)
    weir certs --from_secret --out certs
    weir_ps --cluster "ps=127.0.0.1:2222" --task_index 0 &
    python linear_model_any_language.py 127.0.0.1:2222 certs/worker-0

What is done here in Python is open to every language that gRPC knows: all of
it follows from proto/ps.proto. There is one parameter server and one worker,
and the worker does what a chief does, too (see client/cc/sdk/session.cc for
more of both). It learns y = 3 x0 - 2 x1 + 0.5, and ends with 1 if it did not.
"""

import importlib
import pathlib
import queue
import secrets
import sys
import tempfile

import grpc
import grpc_tools
import numpy as np
from grpc_tools import protoc

PROTOS = pathlib.Path(__file__).resolve().parent.parent / "proto"


def generate():
    """Makes ps_pb2 and ps_pb2_grpc, as any build would, and imports them."""
    folder = tempfile.mkdtemp(prefix="weir-stubs-")
    google = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    code = protoc.main(
        [
            "protoc",
            f"-I{PROTOS}",
            f"-I{google}",
            f"--python_out={folder}",
            f"--grpc_python_out={folder}",
            "field_rules.proto",
            "job_spec.proto",
            "ps.proto",
            "trace.proto",
        ]
    )
    if code != 0:
        sys.exit(f"protoc ended with {code}")
    sys.path.insert(0, folder)
    return importlib.import_module("ps_pb2"), importlib.import_module(
        "ps_pb2_grpc"
    )


def connect(address, certificates):
    """A channel on which both sides prove that they belong to the job."""
    folder = pathlib.Path(certificates)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=(folder / "ca.crt").read_bytes(),
        private_key=(folder / "tls.key").read_bytes(),
        certificate_chain=(folder / "tls.crt").read_bytes(),
    )
    # Certificates of Weir name a task of the job, and besides that "weir".
    options = [("grpc.ssl_target_name_override", "weir")]
    return grpc.secure_channel(address, credentials, options)


def greet(ps, pb, address):
    """Step 1, Hello: a server that holds a job already is left alone."""
    hello = ps.Hello(
        pb.HelloRequest(wire_version=3), wait_for_ready=True, timeout=30
    )
    if hello.state != pb.EMPTY:
        sys.exit(f"{address} holds job '{hello.job}': start a fresh weir_ps")


def declare(ps, pb):
    """Step 2, Declare: the tensors, what gradients do to them, and when.

    Returns the sender, which every later request carries: it says who speaks,
    and about which job and layout.
    """
    history = 0x5EED  # random in real life: it tells this job from others
    declaration = pb.Declaration(
        job="linear",
        history=history,
        shard_count=1,
        block_elements=1024,
        variable=[
            {"name": "weight", "shape": [2]},
            {"name": "bias", "shape": [1]},
        ],
        group=[
            {
                "optimizer": {"sgd": {"momentum": 0.5}},
                "schedule": {"learning_rate": 0.1},
            }
        ],
        update={"async": {}},  # async is a keyword of Python's, hence {}
        slot_count=1,
    )
    declared = ps.Declare(pb.DeclareRequest(declaration=declaration, shard=0))
    return pb.Sender(
        job="linear",
        history=history,
        layout_fingerprint=declared.layout_fingerprint,
    )


def open_slot(ps, pb, sender):
    """Step 3, SetSlots: from now on slot 0 may push, as generation 1.

    Only who knows the capability, which nobody can guess, may push for it.
    """
    grant = {
        "generation": 1,
        "capability_high": secrets.randbits(64),
        "capability_low": secrets.randbits(64),
    }
    ps.SetSlots(pb.SetSlotsRequest(sender=sender, slot=[{"slot": 0, **grant}]))
    sender.MergeFrom(pb.Sender(slot=0, **grant))


# Step 4, the layout: variables lie one behind the other, and each begins at a
# multiple of 16 elements. Here that is weight at 0, bias at 16, and 32 in all,
# which is one block (common/job/layout.h has the rule for more).
WEIGHT, BIAS, ELEMENTS = slice(0, 2), 16, 32


def pull(ps, pb, sender):
    """Step 5, Pull: returns the values, and the version that they are of."""
    pulled = ps.Pull(pb.PullRequest(sender=sender, want={"latest": True}))
    (chunk,) = pulled  # one answer for each block
    # A payload is float32 in little-endian order.
    return np.frombuffer(chunk.payload, "<f4"), chunk.version


def compute_gradient(values, random):
    """Returns the gradient of the squared error of one random batch."""
    x = random.normal(size=(32, 2))
    y = x @ [3.0, -2.0] + 0.5
    error = x @ values[WEIGHT] + values[BIAS] - y
    gradient = np.zeros(ELEMENTS, "<f4")
    gradient[WEIGHT] = 2.0 * x.T @ error / len(x)
    gradient[BIAS] = 2.0 * error.mean()
    return gradient


def train(ps, pb, sender, values, version):
    """Step 6, PushPull: one stream for all steps; returns the last values.

    A gradient goes up, and the values that it led to come down. Sequence
    numbers make each count once, whatever is repeated.
    """
    requests = queue.SimpleQueue()
    replies = ps.PushPull(iter(requests.get, None))
    random = np.random.default_rng(1)
    for sequence in range(200):
        requests.put(
            pb.GradientChunk(
                sender=sender,
                push={"sequence": sequence, "base_version": version},
                block=0,
                want={"latest": True},
                payload=compute_gradient(values, random).tobytes(),
            )
        )
        reply = next(replies)
        if reply.receipt.outcome != pb.Receipt.ACCEPTED:
            sys.exit(f"push {sequence} was not accepted: {reply.receipt}")
        values, version = np.frombuffer(reply.payload, "<f4"), reply.version
    requests.put(None)  # the end of the stream
    for _ in replies:  # until the server has ended it, too
        pass
    return values


def main(address, certificates):
    pb, pb_grpc = generate()
    ps = pb_grpc.ParameterServerStub(connect(address, certificates))
    greet(ps, pb, address)
    sender = declare(ps, pb)
    open_slot(ps, pb, sender)
    values, version = pull(ps, pb, sender)
    values = train(ps, pb, sender, values, version)

    # Step 7, Shutdown: the job is done, and the server ends.
    ps.Shutdown(pb.ShutdownRequest(sender=sender))
    print(f"y = {values[0]:.3f} x0 + {values[1]:.3f} x1 + {values[BIAS]:.3f}")
    found = np.append(values[WEIGHT], values[BIAS])
    return 0 if np.allclose(found, [3.0, -2.0, 0.5], atol=0.01) else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: linear_model_any_language.py HOST:PORT CERTIFICATES")
    sys.exit(main(*sys.argv[1:]))
