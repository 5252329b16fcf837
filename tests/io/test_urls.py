"""What is shown of a url: never its secrets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.io.urls import REMOTE_EXTRAS, is_local, reason, redact_url, scheme_of


@pytest.mark.parametrize(
    "url, scheme",
    {
        "s3://bucket/key": "s3", "S3://b": "s3", "https://h/x?y": "https", "file:///tmp/x": "file",
        "memory://x": "memory", "simplecache::s3://b/k": "simplecache", "a+b.c-d://x": "a+b.c-d", "/plain/path": None,
        "relative/path": None, "": None, "C:/windows": None, "C:\\windows": None, "a:b": None, "-": None,
        "./s3://x": None, "1s3://x": None, "dir/s3://x": None,
    }.items(),
)  # fmt: skip
def test_scheme(url, scheme):
    assert scheme_of(url) == scheme
    assert is_local(url) == (scheme in (None, "file"))


@pytest.mark.parametrize("scheme", ["s3", "https", "http", "ftp", "memory", "gopher", "simplecache::s3", "gs", "sftp"])
@pytest.mark.parametrize(
    "rest, shown",
    {
        "host/path": "host/path",
        "user:s3cret@host/path": "host/path",
        "s3cret@host/path": "host/path",
        "host/path?s3cret=1": "host/path",
        "host/path?a=1&b=s3cret@x": "host/path",
        "host?s3cret": "host",
        "host:8080/path?s3cret": "host:8080/path",
        "user:s3/cr3t@host/path": "host/path",
        "user:s3?cr3t@host/path": "host/path",
        "user:s3#cr3t@host/path": "host/path",
        "us@er:s3cret@host/path": "host/path",
        "user:s3@cr3t@host/path": "host/path",
        "host/a@b/path": "host/a@b/path",
        "host:80/a@b": "host:80/a@b",
    }.items(),
)
def test_secrets_are_left_out(scheme, rest, shown):
    assert redact_url(f"{scheme}://{rest}") == f"{scheme}://{shown}"


@pytest.mark.parametrize("path", ["/data/a@b?c#d.svm", "a:b@c", "-", "", "C:\\x?y"])
def test_paths_are_shown_as_they_are(path):
    assert redact_url(path) == path


@given(st.text(), st.text())
def test_redaction_never_fails_and_is_final(before, after):
    url = redact_url(f"{before}://{after}")
    assert redact_url(url) == url


class Odd(Exception):  # noqa: N818
    def __str__(self):
        return ""


def test_reasons():
    assert reason(OSError(2, "No such file", "/x")) == "No such file"
    assert reason(ValueError("two\n  lines")) == "two lines"
    assert reason(Odd()) == "Odd"
    text = (
        "GET 'https://u:s3cret@h/p?s3cret=1': 403 <http://s3cret@h/q> and s3://b/k?s3cret, simplecache::s3://u:s3cret@b"
    )
    assert reason(RuntimeError(text)) == "GET 'https://h/p': 403 <http://h/q> and s3://b/k simplecache::s3://b"


def test_extras_are_those_of_the_project():
    assert {extra for extra in REMOTE_EXTRAS.values() if extra} == {"s3", "gcs", "azure", "http"}


def test_a_reason_does_not_tell_what_is_secret_in_the_url():
    """Some libraries take user and password for a part of a bucket's name, and complain about it."""
    url = "s3://somebody:p4ssw0rd@bucket/key?t0ken=abcdef#fr4gment"
    text = reason(ValueError('Invalid bucket name "somebody:p4ssw0rd@bucket", see ?t0ken=abcdef or p4ssw0rd'), url)
    assert text == 'Invalid bucket name "...bucket", see ?...=... or ...'
    assert reason(ValueError("s3 is out of reach"), "s3://bucket/key") == "s3 is out of reach"
    assert reason(ValueError("no bucket here"), "plain/path") == "no bucket here"
