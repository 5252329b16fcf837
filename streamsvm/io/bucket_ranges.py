"""Ranges of an object in a bucket, through fsspec's asynchronous file systems (s3, gcs, azure, http with options).

A range is a task on fsspec's event loop, which can be cancelled. S3 is asked for the object only if it still has the
ETag that it had (If-Match), and hands its bytes on as they come; of the others whole ranges are had, and what they say
of the object is compared after a failure and at the end.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from streamsvm.io.retries import ChangedError, status_of

TIMEOUT = 120.0  # seconds for a range
STEP = 1 << 18
GONE = (412, 416)

Arrived = Callable[[int], None]


class BucketObject:
    """An object by its path in a file system. `fetch` may be called by several threads at a time."""

    def __init__(
        self, filesystem: Any, path: str, size: int | None, stamp: str | None, compare: Callable[[], None]
    ) -> None:
        self._files = filesystem
        self._path = path
        self._size = size
        self._etag = (stamp or "").removeprefix("ETag ") if (stamp or "").startswith("ETag ") else None
        self._compare = compare  # ChangedError if the object is not what it was
        self._s3 = all(hasattr(filesystem, name) for name in ("get_s3", "set_session", "_get_s3_method_kwargs"))
        self._lock = threading.Lock()
        self._live: set[concurrent.futures.Future[None]] = set()
        self._aborted = False

    def fetch(self, start: int, view: memoryview, arrived: Arrived) -> None:
        """Bring the bytes from `start` on into `view`, telling of each few; fewer may come."""
        target = _Target(view, arrived)
        bring = self._from_s3 if self._s3 else self._from_any
        with self._lock:
            if self._aborted:
                raise ConnectionAbortedError("stopped")
            task = _begun(bring(start, target), self._files.loop)
            self._live.add(task)
        try:
            task.result(TIMEOUT)
        except concurrent.futures.TimeoutError:
            raise TimeoutError(f"no answer within {TIMEOUT:.0f} s") from None
        except concurrent.futures.CancelledError:
            raise ConnectionAbortedError("stopped") from None
        except Exception as error:
            if status_of(error) in GONE:
                raise ChangedError("the server has another object under this name") from error
            raise
        finally:
            target.close()
            task.cancel()
            with self._lock:
                self._live.discard(task)

    def unchanged(self) -> None:
        if not (self._s3 and self._etag):
            self._compare()

    def abort(self) -> None:
        with self._lock:
            self._aborted = True
            live = list(self._live)
        for task in live:
            task.cancel()

    async def _from_s3(self, start: int, target: "_Target") -> None:
        bucket, key, version = self._files.split_path(self._path)
        asked = {"Bucket": bucket, "Key": key, "Range": f"bytes={start}-{start + target.size - 1}"}
        if self._etag:
            asked["IfMatch"] = self._etag
        if version:
            asked["VersionId"] = version
        await self._files.set_session()
        client = await self._files.get_s3(bucket)
        answer = await client.get_object(**self._files._get_s3_method_kwargs(client.get_object, **asked))
        body = answer["Body"]
        try:
            total = str(answer.get("ContentRange", "")).rpartition("/")[2]
            if total.isdigit() and int(total) != self._size:
                raise ChangedError(f"it had {self._size:,} bytes and has {int(total):,} now")
            if self._etag and answer.get("ETag") != self._etag:
                raise ChangedError("its ETag is another one now")
            while piece := await body.read(STEP):
                target.add(piece)
        finally:
            body.close()

    async def _from_any(self, start: int, target: "_Target") -> None:
        target.add(await self._files._cat_file(self._path, start=start, end=start + target.size))


def _begun(task: Coroutine[Any, Any, None], loop: Any) -> "concurrent.futures.Future[None]":
    return asyncio.run_coroutine_threadsafe(task, loop)


class _Target:
    """Where the bytes of one attempt go, until that is over: a task that is cancelled may still run for a moment."""

    def __init__(self, view: memoryview, arrived: Arrived) -> None:
        self.size = len(view)
        self._view = view
        self._arrived = arrived
        self._filled = 0
        self._open = True
        self._lock = threading.Lock()

    def add(self, piece: bytes) -> None:
        with self._lock:
            if not self._open:
                raise ConnectionAbortedError("stopped")
            piece = piece[: self.size - self._filled]
            self._view[self._filled : self._filled + len(piece)] = piece
            self._filled += len(piece)
            self._arrived(len(piece))

    def close(self) -> None:
        with self._lock:
            self._open = False
