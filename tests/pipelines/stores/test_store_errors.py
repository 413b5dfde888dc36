"""Errors of stores: one line in words, soon, with no secret; bad URLs; missing libraries."""

import time
from typing import Any

import pytest
from botocore import exceptions as boto
from google.api_core import exceptions as google
from labeldp.pipelines.spec import machine
from labeldp.transforms.errors import StoreError
from labeldp.transforms.stores import google_store, object_store, s3_store

pytestmark = pytest.mark.xdist_group("stores")

S3 = pytest.mark.parametrize("emulator", ["s3"], indirect=True)
STORES = pytest.mark.parametrize("emulator", ["s3", "gs"], indirect=True)
SOON = 8.0
"""Seconds."""


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:hushhush@log/in/*.csv", "s3://hushhush@log/in", "s3://log:hushhush/x", "gs://a:hushhush@log/x",
    ],
)  # fmt: skip
@S3
def test_a_url_with_credentials_is_refused_and_not_repeated(
    emulator: Any, on_store: Any, invoke: Any, url: str
) -> None:
    for flag in ("input", "output", "noise_key_file", "ledger"):
        refused = invoke(on_store(**{flag: url}))
        assert refused.code == 2
        assert f"--{flag}: a {url[:2]}:// URL takes no credentials" in refused.error
        assert "hushhush" not in refused.err
    audited = invoke(["audit", url])
    assert audited.code == 2
    assert "hushhush" not in audited.err
    endpoint = invoke(on_store(s3_endpoint_url="http://user:hushhush@127.0.0.1:1"))
    assert endpoint.code == 2
    assert "--s3_endpoint_url takes no credentials" in endpoint.error
    assert "hushhush" not in endpoint.err


@S3
def test_malformed_urls_are_bad_usage(emulator: Any, on_store: Any, invoke: Any) -> None:
    for url, text in (
        ("s3://log", "is not of the form s3://BUCKET/NAME"), ("s3:///x", "is not of the form"),
        ("s3://log/", "names a whole bucket"), ("s3://log/a//b", "has an empty part"),
        ("s3://log/a/../b", "has an empty part, . or .."),
    ):  # fmt: skip
        refused = invoke(on_store(output=url))
        assert refused.code == 2
        assert f"--output {url} {text}" in refused.error
    for endpoint in ("127.0.0.1:9000", "ftp://host", "http://["):
        refused = invoke(on_store(s3_endpoint_url=endpoint))
        assert refused.code == 2
        assert "--s3_endpoint_url must be of the form" in refused.error


@S3
def test_a_bucket_that_does_not_exist(emulator: Any, on_store: Any, invoke: Any) -> None:
    for flag in ("input", "output", "noise_key_file", "ledger", "validate"):
        failed = invoke(on_store(**{flag: "s3://nowhere/x"}))
        assert failed.code == 1
        assert f"--{flag} s3://nowhere/x: no such bucket" in failed.error
    assert "no such bucket" in invoke(["audit", "s3://nowhere/x"]).error


@STORES
def test_an_endpoint_that_does_not_answer(
    emulator: Any, on_store: Any, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = on_store()
    name = {"s3": "AWS_ENDPOINT_URL", "gs": "STORAGE_EMULATOR_HOST"}[emulator.scheme]
    before = emulator.variables[name]
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    began = time.monotonic()
    failed = invoke(job)
    assert failed.code == 1
    assert "the endpoint is not reachable" in failed.error
    assert time.monotonic() - began < SOON
    monkeypatch.setenv(name, before)


@S3
def test_no_credentials(
    emulator: Any, on_store: Any, invoke: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    job = on_store()
    with monkeypatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.delenv(name)
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            patch.setenv(name, str(tmp_path / "none"))
        began = time.monotonic()
        failed = invoke(job)
        assert failed.code == 1
        assert "no credentials: set AWS_PROFILE" in failed.error
        assert time.monotonic() - began < SOON
        patch.setenv("AWS_PROFILE", "unknown")
        assert "the profile of AWS_PROFILE is not configured" in invoke(job).error


@S3
def test_help_and_a_nonexistent_release(emulator: Any, invoke: Any) -> None:
    assert "--s3_endpoint_url" in invoke(["privatize", "--help"]).out
    gone = invoke(["audit", emulator.url("gone")])
    assert gone.code == 2
    assert "log/gone does not exist" in gone.error
    assert invoke(["audit", emulator.url("gone"), "--bad_flag"]).code == 2
    assert "no flag takes" in invoke(["audit", emulator.url("a"), emulator.url("b")]).error


@pytest.mark.parametrize(("scheme", "extra"), [("s3", "aws"), ("gs", "gcp")])
def test_a_missing_library_is_named(
    invoke: Any, job: Any, monkeypatch: pytest.MonkeyPatch, scheme: str, extra: str
) -> None:
    monkeypatch.setattr(machine, "_importable", lambda name: not name.startswith(("boto3", "google")))
    failed = invoke(job(input=f"{scheme}://log/*.csv"))
    assert failed.code == 2
    assert f"--input {scheme}:// needs the extra {extra}: pip install 'labeldp[{extra}]'" in failed.error


def answer(code: str, status: int = 400) -> boto.ClientError:
    response: Any = {
        "Error": {"Code": code, "Message": "hushhush"}, "ResponseMetadata": {"HTTPStatusCode": status},
    }  # fmt: skip
    return boto.ClientError(response, "PutObject")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (answer("AccessDenied", 403), "access denied"),
        (answer("403", 403), "access denied"),
        (answer("InvalidAccessKeyId", 403), "the credentials are not valid"),
        (answer("ExpiredToken"), "the credentials have expired"),
        (answer("PermanentRedirect", 301), "another region"),
        (answer("PreconditionFailed", 412), "changed by another run"),
        (answer("ConditionalRequestConflict", 409), "changed by another run"),
        (answer("NoSuchKey", 404), "no such object"),
        (answer("hushhush", 500), "HTTP status 500"),
        (boto.EndpointConnectionError(endpoint_url="hushhush"), "not reachable"),
        (boto.ReadTimeoutError(endpoint_url="hushhush"), "not reachable"),
        (boto.SSLError(endpoint_url="hushhush", error=Exception("hushhush")), "certificate"),
        (boto.BotoCoreError(), "BotoCoreError"),
    ],
)
def test_words_for_errors_of_s3(error: Exception, text: str) -> None:
    with pytest.raises(StoreError, match=text) as found, s3_store._reasons():
        raise error
    assert "hushhush" not in str(found.value)
    assert found.value.__cause__ is None


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (google.Forbidden("hushhush"), "access denied"),
        (google.Unauthorized("hushhush"), "access denied"),
        (google.NotFound("The specified bucket does not exist. hushhush"), "no such bucket"),
        (google.NotFound("No such object: hushhush"), "no such object"),
        (google.PreconditionFailed("hushhush"), "changed by another run"),
        (google.InternalServerError("hushhush"), "HTTP status 500"),
        (google_store.DefaultCredentialsError("hushhush"), "no credentials: run gcloud auth"),
        (google_store.GoogleAuthError("hushhush"), "the credentials are not valid or have expired"),
        (google_store.requests.ConnectionError("hushhush"), "not reachable"),
        (google.RetryError("hushhush", ConnectionError()), "not reachable"),
    ],
)
def test_words_for_errors_of_google_cloud(error: Exception, text: str) -> None:
    with pytest.raises(StoreError, match=text) as found, google_store._reasons():
        raise error
    assert "hushhush" not in str(found.value)
    assert found.value.__cause__ is None


def test_names_of_buckets_are_checked() -> None:
    for url in ("s3://log/x", "gs://my.bucket_1/a b/ü", "s3://log/in/*.csv"):
        object_store.check_url(url)
    for url in ("s3://l/x", "s3://-log/x", "gs:///x", "s3://log", "s3://log//x", "s3://a@b/x", "s3://log/./x"):
        with pytest.raises(ValueError, match=r"form|part|bucket|credentials"):
            object_store.check_url(url)
