"""Prints the signatures that aws_signature_test.cc has of botocore."""

import datetime
import hashlib
import hmac

import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.credentials

THEN = datetime.datetime(2013, 5, 24, tzinfo=datetime.UTC)
URL = "http://localhost:9000/bucket/a%20b/%C3%A4%2B~.bin"


def signature(body_signed: bool) -> str:
    """The signature of one part of an upload."""
    request = botocore.awsrequest.AWSRequest(
        method="PUT",
        url=f"{URL}?partNumber=12&uploadId=x%2Fy%3D%3D",
        data=b"a part",
    )
    request.context["client_config"] = botocore.config.Config(
        s3={"payload_signing_enabled": body_signed}
    )
    keys = botocore.credentials.Credentials(
        "ACCESS", "secret/+", "a-session-token"
    )
    signer = botocore.auth.S3SigV4Auth(keys, "s3", "eu-central-1")
    botocore.auth.get_current_datetime = lambda: THEN.replace(tzinfo=None)
    signer.add_auth(request)
    return request.headers["Authorization"].rsplit("=", 1)[1]


class GoogleSigner(botocore.auth.S3SigV4Auth):
    """The same under the names of Cloud Storage."""

    def credential_scope(self, request):
        """Ends in another word."""
        return super().credential_scope(request).replace("aws4", "goog4")

    def string_to_sign(self, request, canonical_request):
        """Begins with another word; the scope is that of above."""
        text = super().string_to_sign(request, canonical_request)
        return text.replace("AWS4-HMAC-SHA256", "GOOG4-HMAC-SHA256")

    def signature(self, string_to_sign, request):
        """With the key of other words."""
        key = f"GOOG4{self.credentials.secret_key}".encode()
        date = request.context["timestamp"][:8]
        for word in date, self._region_name, self._service_name:
            key = hmac.digest(key, word.encode(), "sha256")
        key = hmac.digest(key, b"goog4_request", "sha256")
        return hmac.digest(key, string_to_sign.encode(), "sha256").hex()


def google_signature() -> str:
    """The signature of an object that must be new."""
    body = b"an object"
    request = botocore.awsrequest.AWSRequest(
        method="PUT",
        url="https://storage.googleapis.com/bucket/a%20b/%C3%A4%2B~.bin",
        data=body,
        headers={
            "x-goog-content-sha256": hashlib.sha256(body).hexdigest(),
            "x-goog-date": THEN.strftime("%Y%m%dT%H%M%SZ"),
            "x-goog-if-generation-match": "0",
        },
    )
    request.context["timestamp"] = THEN.strftime("%Y%m%dT%H%M%SZ")
    request.context["client_config"] = botocore.config.Config(
        s3={"payload_signing_enabled": True}
    )
    keys = botocore.credentials.Credentials("GOOG1EXAMPLE", "secret/+")
    signer = GoogleSigner(keys, "storage", "auto")
    canonical = signer.canonical_request(request)
    text = signer.string_to_sign(request, canonical)
    return signer.signature(text, request)


if __name__ == "__main__":
    print(signature(True))
    print(signature(False))
    print(google_signature())
