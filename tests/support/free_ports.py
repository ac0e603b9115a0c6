"""Ports of the loopback interface for the servers of tests and benchmarks."""

import contextlib
import itertools
import secrets
import socket

# As FreePort of deploy/launcher: none that the system gives to connections, and
# each once, since a server binds its own only a while after it is started.
_ports = itertools.cycle(range(10000, 32000))
for _ in range(secrets.randbelow(22000)):
    next(_ports)


def free_port() -> int:
    """A port that nobody listens at and that no call before returned."""
    while True:
        port = next(_ports)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
