"""Measures the client of object stores beside botocore's transfer manager.

Both write and read one object of 256 MiB at the same server, which drops what
it gets (bench/objects/part_sink), by turns; medians over the rounds. `weir` is
bench/objects/object_copy, `botocore` is upload_file and download_file of boto3
with its defaults, from and to memory (/dev/shm). Both count from the first
request to the last answer. `curl` sends the same file by one PUT: the server is
not the limit where this is at least twice as fast as both.

Run:  ./weir bench objects [--rounds N] [--mib N] [--delay_ms N] [--json FILE]
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time

import boto3

from free_ports import free_port

KEYS = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
}
TOOLS = pathlib.Path(os.environ["WEIR_BENCH_DIR"])
MIB = 1 << 20


class Sink:
    """A running part_sink; a context."""

    def __init__(self, mib: int, delay_ms: int):
        """Each answer waits for `delay_ms`."""
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._process = subprocess.Popen(
            [TOOLS / "part_sink", str(self.port), str(mib), str(delay_ms)]
        )

    def __enter__(self):
        """Waits until it listens."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.01)
        raise RuntimeError("part_sink does not listen")

    def __exit__(self, *_):
        """Ends it."""
        self._process.kill()
        self._process.wait()


def weir(sink: Sink, verb: str, mib: int) -> dict:
    """One copy by object_copy: seconds and bytes of memory."""
    done = subprocess.run(
        [TOOLS / "object_copy", verb, "s3://bench/shard", str(mib)],
        env={**os.environ, **KEYS, "AWS_ENDPOINT_URL": sink.endpoint},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def botocore(sink: Sink, verb: str, file: pathlib.Path) -> float:
    """Seconds of one copy by the transfer manager, in a new client."""
    client = boto3.client(
        "s3",
        endpoint_url=sink.endpoint,
        region_name=KEYS["AWS_REGION"],
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )
    begin = time.perf_counter()
    if verb == "put":
        client.upload_file(str(file), "bench", "shard")
    else:
        client.download_file("bench", "shard", str(file))
    return time.perf_counter() - begin


def curl(sink: Sink, verb: str, file: pathlib.Path) -> float:
    """Seconds of one copy by one request, signed by nobody."""
    what = {
        "put": ["-T", str(file), "-H", "Expect:"],
        "get": ["-o", str(file)],
    }
    done = subprocess.run(
        ["curl", "-sS", "-w", "%{time_total}", *what[verb]]
        + [f"{sink.endpoint}/bench/shard"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def measure(verb: str, delay_ms: int, mib: int, rounds: int) -> dict:
    """MiB a second of each client, Weir's ratio to botocore, and its memory."""
    times = {"weir": [], "botocore": [], "curl": []}
    grown = 0
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
        Sink(mib, delay_ms) as sink,
    ):
        file = pathlib.Path(folder) / "shard"
        file.write_bytes(os.urandom(MIB) * mib)
        for _ in range(rounds):
            of_weir = weir(sink, verb, mib)
            times["weir"].append(of_weir["seconds"])
            grown = max(grown, of_weir["grown_bytes"])
            times["botocore"].append(botocore(sink, verb, file))
            times["curl"].append(curl(sink, verb, file))
    result = {
        f"{name}_mib_s": mib / statistics.median(seconds)
        for name, seconds in times.items()
    }
    ratios = [b / w for w, b in zip(times["weir"], times["botocore"])]
    return {
        "copy": verb,
        "delay_ms": delay_ms,
        **result,
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "weir_mib": grown / MIB,
    }


def main() -> None:
    """Prints a line for each direction and delay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--delay_ms", type=int, nargs="+", default=[0, 20])
    parser.add_argument("--json")
    flags = parser.parse_args()
    results = []
    for delay_ms in flags.delay_ms:
        for verb in ("put", "get"):
            row = measure(verb, delay_ms, flags.mib, flags.rounds)
            results.append(row)
            print(
                f"{verb} {delay_ms:3} ms: weir {row['weir_mib_s']:6.0f} MiB/s, "
                f"botocore {row['botocore_mib_s']:6.0f}, "
                f"curl {row['curl_mib_s']:6.0f}; weir / botocore "
                f"{row['ratio']:.2f} (at least {row['ratio_min']:.2f}); "
                f"weir's memory grew by {row['weir_mib']:.0f} MiB",
                flush=True,
            )
    if flags.json:
        pathlib.Path(flags.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
