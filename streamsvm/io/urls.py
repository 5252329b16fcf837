"""What a url may be, and how it is shown: nothing secret in output, errors, models or caches."""

import re

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

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)(?:::|://)")


def scheme_of(url: str) -> str | None:
    """`s3` of `s3://bucket/key`; None for a plain path."""
    found = _SCHEME.match(url)
    return found.group(1).lower() if found else None


def redact_url(url: str) -> str:
    """The url without user, password, query string and fragment; a plain path as it is."""
    if scheme_of(url) in (None, "file", "local"):
        return url
    head, _, rest = url.partition("://")
    rest = re.split(r"[?#]", rest, maxsplit=1)[0] if scheme_of(url) in ("http", "https") else rest.split("?", 1)[0]
    host, slash, path = rest.partition("/")
    return f"{head}://{host.rsplit('@', 1)[-1]}{slash}{path}"
