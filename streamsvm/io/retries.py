"""What is worth another attempt, how long to wait before it, and when to give up.

Attempts are counted as long as they bring nothing: a byte, and the counting starts over. So an object of any size comes
through a bad network, and a server that is gone is given up soon.
"""

import random
import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from streamsvm.errors import SourceError, StreamSvmError
from streamsvm.io.urls import reason

FIRST_WAIT, LONGEST_WAIT = 0.2, 20.0  # seconds; each wait is about twice the one before
WORTH_IT = (408, 425, 429)  # answers below 500 that may be others later
HOPELESS = (
    *(FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ssl.SSLCertVerificationError),
    *(ValueError, TypeError, AttributeError, NotImplementedError, ImportError, MemoryError),
)
NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "CredentialRetrievalError")

Sleep = Callable[[float], object]
Result = TypeVar("Result")


class ChangedError(Exception):
    """An object is not the one that was found at the start; says what is another."""


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an exception, or one that caused it, tells of; each library has a way of its own."""
    chain: BaseException | None = error
    for depth in range(5):
        if chain is None:
            return None
        for name in ("status", "status_code", *(() if depth else ("code",))):  # of causes, parsers have codes too
            found = getattr(chain, name, None)
            if isinstance(found, int) and 100 <= found < 600:
                return int(found)
        response: Any = getattr(chain, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return status if isinstance(status, int) else None
        chain = chain.__cause__ or chain.__context__
    return None


def hopeless(error: Exception) -> bool:
    """Whether the same error would come again: wrong names, missing rights, mistakes."""
    status = status_of(error)
    if status is not None:
        return status < 500 and status not in WORTH_IT
    if type(error).__name__ in NO_CREDENTIALS or "DNSError" in type(error).__name__:
        return True
    if isinstance(error, socket.gaierror):
        return error.errno != socket.EAI_AGAIN
    return isinstance(error, HOPELESS) and not isinstance(error, UnicodeError)


class Patience:
    """The attempts at one thing: `failed` waits before the next one, or raises SourceError if that was the last."""

    def __init__(self, retries: int, url: str, shown: str) -> None:
        self._retries = retries
        self._url = url
        self._shown = shown
        self._failures = 0

    def progress(self) -> None:
        """The attempt that is about to fail has brought something, and does not count."""
        self._failures = -1

    def failed(self, error: Exception, where: str, sleep: Sleep) -> None:
        """`where` is what could not be done, as in "cannot read on at byte 5"; `sleep` waits so many seconds."""
        self._failures += 1
        why = reason(error, self._url)
        if hopeless(error):
            raise SourceError(f"{self._shown}: {where}: {why}") from error
        if self._failures > self._retries:
            count = f"{self._failures} attempts failed, the last with: " if self._failures > 1 else ""
            remedy = "try again later, or raise data.retries" if self._failures > 1 else "try again later"
            raise SourceError(f"{self._shown}: {where}: {count}{why}; {remedy}") from error
        wait = min(FIRST_WAIT * 2.0 ** max(0, self._failures - 1), LONGEST_WAIT)
        sleep(wait * random.uniform(0.5, 1.0))  # so that many readers do not come back at the same moment


def persistently(
    action: Callable[[], Result], where: str, *, retries: int, url: str, shown: str, sleep: Sleep
) -> Result:
    """What `action` returns, with as many attempts as it needs; FileNotFoundError is handed on as it is."""
    patience = Patience(retries, url, shown)
    while True:
        try:
            return action()
        except (FileNotFoundError, StreamSvmError):
            raise
        except Exception as error:
            patience.failed(error, where, sleep)
