"""A web server with range requests that can be made slow and faulty; as a script, it serves one file to a benchmark.

python tests/range_server.py FILE [LATENCY_IN_SECONDS]      prints its port, and serves until its input ends
"""

import contextlib
import hashlib
import os
import re
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from signals import NEVER, PATIENT

PIECE = 1 << 16


class Fault(NamedTuple):
    """What goes wrong with one answer."""

    kind: str  # drop: the connection breaks after `count` bytes; short: fewer bytes are sent, and said to be;
    # status: an error instead of an answer; stall: nothing comes after `count` bytes
    count: int = 0
    status: int = 503


class Stored(NamedTuple):
    content: bytes | Path
    etag: str | None

    @property
    def size(self) -> int:
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size


class Request(NamedTuple):
    method: str
    path: str
    start: int | None
    stop: int | None
    headers: dict[str, str]


class RangeServer(ThreadingHTTPServer):
    """Objects by name; what may be changed while it runs: `latency`, `faults`, `ranges`, `sized`, and the objects."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, Stored] = {}
        self.redirects: dict[str, str] = {}
        self.latency = 0.0  # seconds before an answer
        self.rate = 0.0  # bytes a second of an answer; 0 for as fast as can be
        self._gate: threading.Barrier | None = None
        self.faults: list[Fault] = []  # of the next answers to GET, one each
        self.head_faults: list[Fault] = []
        self.ranges = True
        self.sized = True  # False: bodies end when the connection does, in chunks, and HEAD tells no size
        self.etags = True
        self.password: str | None = None
        self.requests: list[Request] = []
        self.lock = threading.Lock()
        self.open_now = self.most_open = 0  # requests for bytes that are not answered yet
        self._sockets: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), name="range-server", daemon=True)

    def start(self) -> "RangeServer":
        self._thread.start()
        return self

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        for one in list(self._sockets):
            with_suppressed(one.shutdown, socket.SHUT_RDWR)
        self._thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._sockets.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._sockets.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that has gone

    def hold(self, count: int) -> None:
        """No answer to the next GETs until so many of them wait for one; the first of them fail if fewer come."""

        def let_go() -> None:
            self._gate = None

        self._gate = threading.Barrier(count, let_go, PATIENT)

    def put(self, name: str, content: bytes | Path) -> str:
        """The url of an object with this content."""
        known = content if isinstance(content, bytes) else str(content).encode()
        self.objects[f"/{name}"] = Stored(content, f'"{hashlib.sha256(known).hexdigest()[:16]}"')
        return self.url(name)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"

    def gets(self, name: str = "") -> list[Request]:
        return [one for one in self.requests if one.method == "GET" and one.path.startswith(f"/{name}")]


def with_suppressed(action: Any, *arguments: Any) -> None:
    with contextlib.suppress(OSError):
        action(*arguments)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers in one packet
    disable_nagle_algorithm = True
    server: RangeServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:  # noqa: N802
        self._answer(body=False)

    def do_GET(self) -> None:  # noqa: N802
        server = self.server
        with server.lock:
            server.open_now += 1
            server.most_open = max(server.most_open, server.open_now)
        try:
            self._answer(body=True)
        finally:
            with server.lock:
                server.open_now -= 1

    def _answer(self, body: bool) -> None:
        server = self.server
        path = self.path.partition("?")[0]
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")) if server.ranges else None
        with server.lock:
            start, stop = (int(asked[1]), int(asked[2]) + 1 if asked[2] else None) if asked else (None, None)
            server.requests.append(Request(self.command, self.path, start, stop, dict(self.headers)))
            faults = server.faults if body else server.head_faults
            fault = faults.pop(0) if faults else None
        if body and (gate := server._gate) is not None:
            gate.wait()
        if server.latency:
            time.sleep(server.latency)
        if fault is not None and fault.kind == "status":
            return self._plain(fault.status, f"secret answer {fault.status}")
        if server.password and self.headers.get("Authorization") != server.password:
            return self._plain(401, "who are you?")
        if path in server.redirects:
            return self._plain(302, "", {"Location": server.redirects[path]})
        stored = server.objects.get(path)
        if stored is None:
            return self._plain(404, "nothing here")
        if self.headers.get("If-Match") not in (None, stored.etag):
            return self._plain(412, "another one")
        size = stored.size
        if start is not None and start >= size:
            return self._plain(416, "beyond the end", {"Content-Range": f"bytes */{size}"})
        first, last = start or 0, min(stop or size, size)
        if fault is not None and fault.kind == "short" and start is not None:
            last = min(last, first + max(1, fault.count))
        self.send_response(200 if start is None else 206)
        if server.etags and stored.etag:
            self.send_header("ETag", stored.etag)
        if start is not None:
            self.send_header("Content-Range", f"bytes {first}-{last - 1}/{size}")
        if server.sized:
            self.send_header("Content-Length", str(last - first))
            if server.ranges:
                self.send_header("Accept-Ranges", "bytes")
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        if body:
            self._send_body(stored, first, last, fault)

    def _plain(self, status: int, text: str, headers: dict[str, str] = {}) -> None:  # noqa: B006
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(text.encode())

    def _send_body(self, stored: Stored, first: int, last: int, fault: Fault | None) -> None:
        end = min(last, first + fault.count) if fault is not None and fault.kind in ("drop", "stall") else last
        self._send(stored.content, first, end)
        if fault is not None and fault.kind == "stall":
            time.sleep(NEVER)
        if end < last or (fault is not None and fault.kind == "drop"):
            self.close_connection = True
            with_suppressed(self.connection.shutdown, socket.SHUT_RDWR)
        elif not self.server.sized:
            self.wfile.write(b"0\r\n\r\n")

    def _send(self, content: bytes | Path, first: int, end: int) -> None:
        rate = self.server.rate
        if isinstance(content, Path):
            with open(content, "rb") as file:
                while first < end and (
                    sent := os.sendfile(self.connection.fileno(), file.fileno(), first, end - first)
                ):
                    first += sent
            return
        view = memoryview(content)
        for place in range(first, end, PIECE):
            piece = view[place : min(place + PIECE, end)]
            if not self.server.sized:
                self.connection.sendall(f"{len(piece):x}\r\n".encode() + bytes(piece) + b"\r\n")
            else:
                self.connection.sendall(piece)
            if rate:
                time.sleep(len(piece) / rate)


def serve_one_file(path: str, latency: float = 0.0) -> None:
    server = RangeServer()
    server.put("rows.svm", Path(path))
    server.latency = latency
    server.start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve_one_file(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
