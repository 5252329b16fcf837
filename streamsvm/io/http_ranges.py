"""Ranges of an object on a web server, received straight into memory that is there already.

fsspec's own way to read http joins and copies what comes several times, on one thread for all connections: on a fast
network that costs more than parsing the rows. This client does what reading needs and no more: GET with a range, over
connections that are kept and used again, with redirects followed, through the proxy that the environment names
(HTTP_PROXY, HTTPS_PROXY, NO_PROXY), if it does. Every answer must be of the object that was found at the start: same
size, same ETag (or date). Where options ask for more than headers, fsspec does the reading.
"""

import atexit
import base64
import contextlib
import http.client
import io
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from streamsvm.io.retries import ChangedError

TIMEOUT = 30.0  # seconds without a byte
STEP = 1 << 16  # bytes received before they are told of
AT_ONCE = 1 << 20  # bytes that the system collects before it hands them over
MOST_IDLE = 32  # connections kept for later
MOST_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)
GONE = (412, 416)  # answers that say: this is another object, or it is shorter now
REFUSED = (400, 403, 405, 501)  # answers to HEAD of servers that would answer to GET
SAFE = "/%:=&?~#+!$,;'@()*[]"

TIMEVAL = struct.pack("@ll", int(TIMEOUT), 0) if os.name == "posix" else b""  # as the system has it

Arrived = Callable[[int], None]


class NoRangesError(Exception):
    """The server sends whole objects only."""


class HttpStatusError(OSError):
    """An answer that is not what was asked for."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"HTTP {status} {reason}".rstrip())
        self.status = status


class Host(NamedTuple):
    secure: bool
    name: str
    port: int | None


class Connections:
    """Connections that are open and not in use, by host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[Host, http.client.HTTPConnection]] = []
        self._process = os.getpid()

    def take(self, host: Host) -> http.client.HTTPConnection | None:
        with self._lock:
            if self._process != os.getpid():  # a fork must not talk on its parent's connections
                self._process = os.getpid()
                self._idle.clear()
            for place in range(len(self._idle) - 1, -1, -1):
                if self._idle[place][0] == host:
                    return self._idle.pop(place)[1]
        return None

    def keep(self, host: Host, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.append((host, connection))
            surplus = self._idle[:-MOST_IDLE]
            self._idle = self._idle[-MOST_IDLE:]
        for _, old in surplus:
            old.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()


CONNECTIONS = Connections()
atexit.register(CONNECTIONS.close)


class Answer:
    """A response with its connection, which is kept for later if all of the body was read, and closed if not."""

    def __init__(self, host: Host, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._host = host
        self._connection = connection
        self._response = response
        self.status = response.status
        self.headers = response.headers
        self._left = response.length  # None if the end of the body is not told beforehand
        self._socket: socket.socket | None = None  # to receive from, once nothing is left in the response's buffer

    def readinto(self, view: memoryview) -> int:
        """What has come, at least a byte; 0 at the end, and ConnectionError if that comes too early."""
        if self._left is None:
            piece = self._response.read1(len(view))
            view[: len(piece)] = piece
            return len(piece)
        if not self._left or not len(view):
            return 0
        got = self._received(view[: self._left])
        if not got:
            raise ConnectionError(f"the connection was closed {self._left:,} bytes too early")
        self._left -= got
        return got

    def _received(self, view: memoryview) -> int:
        """Bytes of the body. Whenever some are taken, this thread must have Python's lock, and others have it: so the
        system collects many before it wakes us up."""
        if self._socket is not None:
            try:
                return self._socket.recv_into(view[:AT_ONCE], 0, socket.MSG_WAITALL)
            except BlockingIOError:
                raise TimeoutError(f"nothing came for {TIMEOUT:.0f} s") from None
        got = int(self._response.fp.readinto1(view))
        plain = self._connection.sock
        if (
            len(view) > io.DEFAULT_BUFFER_SIZE
            and TIMEVAL
            and isinstance(plain, socket.socket)
            and not self._host.secure
        ):
            plain.settimeout(None)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIMEVAL)
            self._socket = plain
        return got

    def close(self) -> None:
        whole = self._left == 0 or (self._left is None and self._response.isclosed())
        self._response.close()
        if self._socket is not None:
            self._socket.settimeout(TIMEOUT)
        if whole and not self._response.will_close and self._connection.sock is not None:
            CONNECTIONS.keep(self._host, self._connection)
        else:
            self._connection.close()


def abort(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError, AttributeError):  # it has no socket yet, or no more
        connection.sock.shutdown(socket.SHUT_RDWR)


class HttpObject:
    """An object by its url. `fetch` and `whole` may be called by several threads at a time."""

    def __init__(self, url: str, size: int | None, stamp: str | None, headers: Mapping[str, str] = {}) -> None:
        self._url = self._target = url
        self._size = size
        self._stamp = stamp
        self._headers = headers
        self._lock = threading.Lock()
        self._live: set[http.client.HTTPConnection] = set()
        self._aborted = False

    def fetch(self, start: int, view: memoryview, arrived: Arrived) -> None:
        """Receive the bytes from `start` on into `view`, telling of each few; fewer may come."""
        answer = self._asked({"Range": f"bytes={start}-{start + len(view) - 1}"})
        try:
            if answer.status == 200 and (start or len(view) != self._size):
                raise NoRangesError
            self._refuse_other(answer, start)
            got = told = 0
            try:
                while got < len(view) and (count := answer.readinto(view[got:])):
                    got += count
                    if got - told >= STEP or not told:
                        arrived(got - told)
                        told = got
            finally:
                if got > told:
                    arrived(got - told)
        finally:
            self._done(answer)

    def info(self) -> dict[str, Any]:
        """Size, ETag and date, as far as the server tells; FileNotFoundError if there is no such object."""
        try:
            answer = self._asked({}, "HEAD")
        except HttpStatusError as error:
            if error.status not in REFUSED:
                raise _known(error) from error
            answer = None
        found = self._told(answer) if answer is not None else {}
        if found.get("size") is None:
            try:
                found |= self._told(self._asked({"Range": "bytes=0-0"}))
            except HttpStatusError as error:
                if error.status != 416:  # of an empty object
                    raise _known(error) from error
                found["size"] = 0
        return found

    def _told(self, answer: Answer) -> dict[str, Any]:
        headers = answer.headers
        self._done(answer)
        total = headers.get("Content-Range", "").rpartition("/")[2] or headers.get("Content-Length", "")
        encoded = headers.get("Content-Encoding", "identity") != "identity"
        stamps = {name: headers[name] for name in ("ETag", "Last-Modified") if name in headers}
        return {"size": int(total) if total.isdigit() and not encoded else None, **stamps}

    def whole(self) -> Answer:
        """All of the object, from its first byte on."""
        answer = self._asked({})
        try:
            self._refuse_other(answer, 0)
        except BaseException:
            self._done(answer)
            raise
        return answer

    def unchanged(self) -> None:
        """Every answer has been compared already."""

    def abort(self) -> None:
        with self._lock:
            self._aborted = True
            live = list(self._live)
        for connection in live:
            abort(connection)

    def _done(self, answer: Answer) -> None:
        with self._lock:
            self._live.discard(answer._connection)
        answer.close()

    def _refuse_other(self, answer: Answer, start: int) -> None:
        headers = answer.headers
        if answer.status == 206:
            span, _, total = headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
            if total.isdigit() and int(total) != self._size:
                raise ChangedError(f"it had {self._size:,} bytes and has {int(total):,} now")
            if span.partition("-")[0] != str(start):
                raise ConnectionError("the server sent another range than it was asked for")
        elif self._size is not None and answer._left not in (None, self._size):
            raise ChangedError(f"it had {self._size:,} bytes and has {answer._left:,} now")
        kind, _, value = (self._stamp or "").partition(" ")
        found = headers.get(kind) if kind in ("ETag", "Last-Modified") else None
        if found is not None and found.removeprefix("W/") != value.removeprefix("W/"):
            raise ChangedError(f"its {kind} is another one now")

    def _asked(self, headers: Mapping[str, str], method: str = "GET") -> Answer:
        """The answer, redirects followed; the last place is remembered until something fails there."""
        url = self._target
        try:
            for _ in range(MOST_REDIRECTS + 1):
                answer = self._answer(method, url, headers)
                if answer.status not in REDIRECTS or "Location" not in answer.headers:
                    break
                url = urljoin(url, answer.headers["Location"])
                self._done(answer)
                if urlsplit(url).scheme not in ("http", "https"):
                    raise HttpStatusError(answer.status, "redirect to something that is no web server")
            else:
                raise HttpStatusError(508, "too many redirects")
            if answer.status not in (200, 206):
                self._done(answer)
                if answer.status in GONE and self._size is not None:
                    raise ChangedError(f"the server answers {answer.status} to what it had before")
                raise HttpStatusError(answer.status, http.client.responses.get(answer.status, ""))
        except BaseException:
            self._target = self._url
            raise
        self._target = url
        return answer

    def _answer(self, method: str, url: str, headers: Mapping[str, str]) -> Answer:
        """The answer of one server. A connection that was kept may have been closed by now: then a new one is made."""
        host = _host(url)
        sent = {"Accept-Encoding": "identity", "User-Agent": "streamsvm", **headers, **self._own_headers(url)}
        kept = CONNECTIONS.take(host)
        if kept is not None:
            try:
                return self._sent(host, kept, method, url, sent)
            except (ConnectionError, http.client.HTTPException, OSError):
                if self._aborted:
                    raise
        return self._sent(host, _connection(host), method, url, sent)

    def _sent(
        self, host: Host, connection: http.client.HTTPConnection, method: str, url: str, headers: Mapping[str, str]
    ) -> Answer:
        with self._lock:
            if self._aborted:
                raise ConnectionAbortedError("stopped")
            self._live.add(connection)
        try:
            if connection.sock is None:
                connection.connect()
                if self._aborted:  # before there was a socket to shut down
                    raise ConnectionAbortedError("stopped")
            parts = urlsplit(url)
            place = quote(parts.path or "/", safe=SAFE) + (f"?{quote(parts.query, safe=SAFE)}" if parts.query else "")
            proxy = None if host.secure else _proxy(host)  # one that passes requests on must know where to
            if proxy is not None:
                place = f"http://{host.name}:{host.port or 80}{place}"
                headers = {**headers, **_credentials(proxy, "Proxy-Authorization")}
            connection.request(method, place, headers=dict(headers))
            return Answer(host, connection, connection.getresponse())
        except BaseException:
            with self._lock:
                self._live.discard(connection)
            connection.close()
            raise

    def _own_headers(self, url: str) -> dict[str, str]:
        """What only the server that the url names may know."""
        if _host(url) != _host(self._url):
            return {}
        return {**_credentials(urlsplit(self._url), "Authorization"), **self._headers}


def _credentials(parts: SplitResult, header: str) -> dict[str, str]:
    """User and password of a url, as a header."""
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {header: f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _proxy(host: Host) -> SplitResult | None:
    """The proxy through which a server is reached, if the environment names one."""
    found = getproxies()
    url = found.get("https" if host.secure else "http") or found.get("all")
    port = host.port or (443 if host.secure else 80)
    if not url or proxy_bypass(f"{host.name}:{port}"):
        return None
    return urlsplit(url if "://" in url else f"http://{url}")


def _connection(host: Host) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if host.secure else http.client.HTTPConnection
    proxy = _proxy(host)
    if proxy is None:
        return kind(host.name, host.port, timeout=TIMEOUT)
    connection = kind(proxy.hostname or "", proxy.port or 8080, timeout=TIMEOUT)
    if host.secure:
        connection.set_tunnel(host.name, host.port or 443, _credentials(proxy, "Proxy-Authorization"))
    return connection


def _known(error: HttpStatusError) -> Exception:
    return FileNotFoundError(str(error)) if error.status in (404, 410) else error


def _host(url: str) -> Host:
    parts = urlsplit(url)
    return Host(parts.scheme == "https", parts.hostname or "", parts.port)


def plain_headers(options: Mapping[str, Any]) -> dict[str, str] | None:
    """The headers that options for http ask for; None if they ask for something else, which only fsspec can do."""
    if set(options) - {"headers", "client_kwargs"} or set(options.get("client_kwargs", {})) - {"headers"}:
        return None
    return {**options.get("client_kwargs", {}).get("headers", {}), **options.get("headers", {})}
