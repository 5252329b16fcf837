"""Checkpoint files in a directory or bucket: `checkpoint-00000012.safetensors`, the last two of them kept.

A new one gets the next number, under which it appears whole or not at all; only then is the oldest removed. So there is
a sound one at every moment, whatever fails in between. A damaged one is passed over, with a warning, for the one before
it. A lock keeps two runs of this machine from using one place.
"""

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from streamsvm.errors import ModelError, SourceError, StreamSvmError
from streamsvm.io import tensors
from streamsvm.io.files import (
    in_directory,
    is_directory,
    local_path,
    names_in,
    read_whole,
    remove,
    sync_directory,
    written_atomically,
)
from streamsvm.io.tensors import Array, Content, Kind
from streamsvm.io.urls import is_local, reason, redact_url
from streamsvm.places import private_directory, user_cache_directory

CHECKPOINT = Kind("streamsvm-checkpoint", 1, "checkpoint")
KEPT = 2
NAME = re.compile(r"checkpoint-([0-9]{8,18})\.safetensors")
PART = re.compile(r"\.checkpoint-[0-9]{8,18}\.safetensors\..*\.part")
LOCK = ".lock"
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # what file systems say that have none, such as Lustre

Note = Callable[[str], None]


class Generation(NamedTuple):
    """A checkpoint that has been read."""

    number: int
    shown: str
    content: Content


class Generations:
    """The checkpoints in one place."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.shown = redact_url(place)
        self._sound: list[int] = []  # those that this process has read or written, oldest first
        self._last = -1  # the largest number that has been in use
        self._lock: IO[bytes] | None = None

    def numbers(self) -> list[int]:
        """Those that are there, damaged or not, oldest first."""
        found = (NAME.fullmatch(name) for name in names_in(self.place))
        numbers = sorted(int(match[1]) for match in found if match)
        self._last = max([self._last, *numbers])
        return numbers

    def url(self, number: int) -> str:
        return in_directory(self.place, f"checkpoint-{number:08d}.safetensors")

    def shown_url(self, number: int) -> str:
        return in_directory(self.shown, f"checkpoint-{number:08d}.safetensors")

    def newest(self, note: Note) -> Generation | None:
        """The newest one that is sound, None if there is none at all; ModelError if all are damaged."""
        faults: list[str] = []
        for number in reversed(self.numbers()):
            shown = self.shown_url(number)
            try:
                found = tensors.load(read_whole(self.url(number)), shown, [CHECKPOINT])
            except StreamSvmError as error:
                faults.append(str(error))
                continue
            for fault in faults:
                note(f"warning: {fault}; falling back to the checkpoint before it, {shown}")
            self._sound = [number]
            return Generation(number, shown, found)
        if faults:
            raise ModelError(f"{self.shown}: no checkpoint can be used: {'; '.join(faults)}")
        return None

    def write(self, metadata: Mapping[str, str], arrays: Mapping[str, Array]) -> str:
        """A new one; then all but the last two are removed. Returns its name; SourceError if it cannot be written."""
        self._remove_old()
        number = self._last + 1
        with written_atomically(self.url(number)) as out:
            tensors.save(CHECKPOINT, metadata, arrays, out.write)
        self._last = number
        self._sound = [*self._sound, number][-KEPT:]
        self._remove_old()
        return self.shown_url(number)

    def _remove_old(self) -> None:
        """All but the last two; of these, one may not have been looked at yet."""
        numbers = self.numbers()
        if not self._sound:
            return
        older = [number for number in numbers if number < self._sound[0]]
        keep = {*self._sound, *(older[-1:] if len(self._sound) < KEPT else [])}
        for number in numbers:
            if number not in keep:
                with contextlib.suppress(SourceError):  # it is removed next time
                    remove(self.url(number))

    # One run at a time.

    def take(self) -> None:
        """Keep other runs on this machine out, and clear away what killed ones left half done.

        ModelError if another run has it. The operating system gives the lock back even after kill -9.
        """
        if os.name == "posix":
            self._take_lock()
        for name in names_in(self.place) if is_local(self.place) else []:
            if PART.fullmatch(name):
                with contextlib.suppress(SourceError):
                    remove(in_directory(self.place, name))

    def _take_lock(self) -> None:
        import fcntl

        try:
            path = self._lock_path()
            if path is None:
                return
            self._lock = open(path, "wb")  # noqa: SIM115
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise ModelError(f"{self.shown}: another run is using this place for its checkpoints") from error
        except OSError as error:
            if error.errno not in NO_LOCKS:
                self.release()
                raise SourceError(f"{self.shown}: cannot write: {reason(error)}") from error

    def _lock_path(self) -> Path | None:
        """In the directory itself; for one that is elsewhere, beside this user's other files, if that can be."""
        if is_local(self.place):
            path = local_path(self.place)
            if not path.is_dir():
                path.mkdir(parents=True, exist_ok=True)
                sync_directory(path.absolute().parent)
            return path / LOCK
        with contextlib.suppress(RuntimeError):
            home = user_cache_directory() / "locks"
            if private_directory(home):
                return home / hashlib.sha256(self.place.encode()).hexdigest()[:16]
        return None

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def read_newest(url: str, kinds: Sequence[Kind], note: Note) -> tuple[Content, str]:
    """What is in a file, or in the newest sound checkpoint of a directory, and its name for messages."""
    if not is_directory(url):
        shown = redact_url(url)
        return tensors.load(read_whole(url), shown, kinds), shown
    newest = Generations(url).newest(note)
    if newest is None:
        raise SourceError(f"{redact_url(url)}: a directory without a checkpoint; name a {kinds[0].called} file")
    return newest.content, newest.shown
