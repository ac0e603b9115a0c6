"""A server of S3's protocol that others wrote: moto, which checks signatures.

WEIR_S3_TOOLS is a virtual environment with deploy/s3_tools.txt; `./weir test`
makes it.
"""

import json
import os
import pathlib
import socket
import subprocess
import time
import urllib.request

import boto3

from free_ports import free_port

TOOLS = os.environ.get("WEIR_S3_TOOLS", "")
BUCKET = "weir-test"
REGION = "eu-central-1"
DEADLINE_S = 30


class MotoServer:
    """moto, with one bucket and one user who may use it; a context."""

    def __init__(self, folder: pathlib.Path, address: str = "127.0.0.1"):
        """Listens at one address of this machine; its log is in `folder`."""
        self.port = free_port()
        self._address = (address, self.port)
        self.endpoint = f"http://{address}:{self.port}"
        self._log = (folder / "moto.log").open("wb")
        self._process = subprocess.Popen(
            [
                f"{TOOLS}/bin/moto_server",
                "-H",
                address,
                "-p",
                str(self.port),
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def _client(self, service: str):
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=getattr(self, "access_key", "none"),
            aws_secret_access_key=getattr(self, "secret_key", "none"),
        )

    def __enter__(self):
        """Makes user and bucket; from then on signatures are checked."""
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                with socket.create_connection(self._address, 1):
                    break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        iam = self._client("iam")
        iam.create_user(UserName="weir")
        iam.put_user_policy(
            UserName="weir",
            PolicyName="bucket",
            PolicyDocument=json.dumps(
                {
                    "Version": "2012-10-17",
                    "Statement": [
                        {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
                    ],
                }
            ),
        )
        keys = iam.create_access_key(UserName="weir")["AccessKey"]
        self._client("s3").create_bucket(
            Bucket=BUCKET,
            CreateBucketConfiguration={"LocationConstraint": REGION},
        )
        self.access_key = keys["AccessKeyId"]
        self.secret_key = keys["SecretAccessKey"]
        self._post("/moto-api/reset-auth", b"0")
        return self

    def __exit__(self, *_):
        """Ends it."""
        self._process.terminate()
        self._process.wait()
        self._log.close()

    def _post(self, path: str, body: bytes) -> None:
        urllib.request.urlopen(
            urllib.request.Request(
                self.endpoint + path,
                data=body,
                headers={"Content-Type": "text/plain"},
            )
        ).read()

    @property
    def s3(self):
        """boto3's client."""
        return self._client("s3")

    def environment(self) -> dict[str, str]:
        """What Weir's programs need to reach it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
        }
