"""What a url may be, and how it is shown: nothing secret in output, errors, models or caches."""

import re
from collections.abc import Mapping
from typing import Any

# Protocols that may be read, and the extra of this package that brings each (None: nothing more is needed).
REMOTE_EXTRAS: dict[str, str | None] = {
    "memory": None,
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
    "adl": "azure",
    "http": "http",
    "https": "http",
    "ftp": None,
    "sftp": None,
    "ssh": None,
    "hdfs": None,
    "webhdfs": None,
    "smb": None,
}

WEB = ("http", "https")

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)(?:::|://)")


def scheme_of(url: str) -> str | None:
    """`s3` of `s3://bucket/key`; None for a plain path."""
    found = _SCHEME.match(url)
    return found.group(1).lower() if found else None


def is_local(url: str) -> bool:
    return scheme_of(url) in (None, "file", "local")


def redact_url(url: str) -> str:
    """The url without user, password, query and fragment, fit for logs and model files; paths stay as they are.

    A password with an unescaped `/`, `?` or `#` in it hides its `@` from the usual rules; what then looks like a
    host with a port that is no number is taken for a user, because a mangled url is better than a printed secret.
    """
    found = _URL.search(url)
    if not found:
        return url
    rest = url[found.end() :]
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in host:
        rest = rest[host.rindex("@") + 1 :]
    elif "@" in rest and not re.fullmatch(r"\[.*\](:[0-9]*)?|[^:]*(:[0-9]*)?", host):
        rest = rest[rest.rindex("@") + 1 :]
    return url[: found.end()] + re.split(r"[?#]", rest, maxsplit=1)[0]


def reason(error: Exception, url: str = "") -> str:
    """What a foreign exception says, on one line, with every url in it redacted, and what is secret in this one."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    text = re.sub(r"[\w+.:-]+://[^\s'\"<>]+", lambda found: redact_url(found.group()), " ".join(text.split()))
    for secret in sorted({*_secrets(url), *_hidden}, key=len, reverse=True):
        text = text.replace(secret, "...")
    return text


def _secrets(url: str) -> list[str]:
    """What `redact_url` leaves out, whole and in words, longest first: a bucket's name may be shown with it."""
    found = _URL.search(url)
    if not found:
        return []
    rest, kept = url[found.end() :], redact_url(url)[found.end() :]
    start = rest.find(kept)
    left_out = [rest[:start], rest[start + len(kept) :]]
    words = {word for piece in left_out for word in [piece, *re.split(r"[:@?#&=]", piece)] if len(word) > 3}
    return sorted(words, key=len, reverse=True)


_hidden: set[str] = set()  # texts that options for file systems hold, of which many are secret


def hide(options: Mapping[str, Any]) -> None:
    """Keep the texts in options out of messages from now on, but for urls that may be shown."""
    for value in options.values():
        if isinstance(value, Mapping):
            hide(value)
        elif isinstance(value, (list, tuple)):
            hide(dict(enumerate(value)))  # type: ignore[arg-type]
        elif isinstance(value, str) and len(value) > 3 and not (_URL.match(value) and redact_url(value) == value):
            _hidden.add(value)


def redact_setting(text: str) -> str:
    """`a.b=value` as it may be shown: a url without its secrets, options for file systems without their values."""
    found = re.match(r"(--set=)?\s*storage_options[^=]*=", text, re.IGNORECASE)
    return f"{found.group()}..." if found else redact_url(text)


def names_place(model: str) -> str:
    """The file of names of a model file.

    >>> names_place("out/model.safetensors"), names_place("s3://bucket/m")
    ('out/model.names.parquet', 's3://bucket/m.names.parquet')
    """
    return model.removesuffix(".safetensors") + ".names.parquet"
