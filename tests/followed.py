"""A follower driven by hand: with a clock of its own, in one thread, and what it has read so far."""

import os
from pathlib import Path

from streamsvm.io.follow import Follower
from streamsvm.io.log_files import Disk
from streamsvm.io.logs import Options
from streamsvm.io.marks import Marks

WAIT = 5.0  # rotate_wait


class Room:
    """Buffers without end."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self, size: int) -> bytearray:
        self.taken += 1
        return bytearray(size + 1)

    def give_back(self, buffer: bytearray) -> None:
        self.taken -= 1


class Reader:
    """Reads logs in rounds; `lines` are those that were learned, as far as a checkpoint says so after a `restart`."""

    def __init__(
        self,
        *patterns: Path | str,
        block_size: int = 64,
        compressed: bool = False,
        max_line: int = 1000,
        disk: Disk | None = None,
    ) -> None:
        self.patterns = [str(pattern) for pattern in patterns]
        self.block_size = block_size
        self.options = Options(WAIT, compressed)
        self.max_line = max_line
        self.disk = disk
        self.now = 0.0
        self.notes: list[str] = []
        self.lines: list[str] = []
        self.origins: list[tuple[str, int, int]] = []
        self.history: list[tuple[Marks, int]] = [(Marks(), 0)]
        self._begin(Marks())

    def _begin(self, marks: Marks) -> None:
        self.follower = Follower(
            self.patterns,
            Marks.restored(marks),
            self.options,
            max_line=self.max_line,
            disk=self.disk,
            note=self.notes.append,
            clock=lambda: self.now,
        )

    def round(self, *, most: int | None = None) -> int:
        """One round, cut short after `most` blocks; returns the number of lines."""
        before, room = len(self.lines), Room()
        blocks = self.follower.round(self.block_size, room)
        for number, block in enumerate(blocks, 1):
            text = bytes(block.buffer[: block.size]).decode()
            assert text.endswith("\n")
            self.origins.append(tuple(block.origin))  # type: ignore[arg-type]
            self.lines += text.splitlines()
            self.history.append((block.after, len(self.lines)))
            room.give_back(block.buffer)
            if number == most:
                break
        blocks.close()  # type: ignore[attr-defined]
        assert room.taken == 0
        return len(self.lines) - before

    def settle(self, seconds: float = 3 * WAIT) -> list[str]:
        """Read for a while, until nothing is to be expected any more."""
        for _ in range(int(seconds / 0.5)):
            self.now += 0.5
            self.round()
        self.history.append((self.follower.marks(), len(self.lines)))
        return self.lines

    def quiet(self, *, step: float = 4.0, most: int = 300) -> None:
        """Read until all is read, in few rounds."""
        for rounds in range(most):
            self.now += step
            self.round()
            if rounds and self.follower.settled:
                break
        self.history.append((self.follower.marks(), len(self.lines)))

    def restart(self, back: int = 0) -> None:
        """Die, and go on from the newest checkpoint but `back`: what was learned after it never was."""
        self.follower.close()
        del self.history[len(self.history) - min(back, len(self.history) - 1) :]
        marks, learned = self.history[-1]
        del self.lines[learned:]
        self.now += 1000.0
        self._begin(marks)

    @property
    def counts(self) -> dict[str, int]:
        return self.follower.marks().counts._asdict()

    def close(self) -> None:
        self.follower.close()


def append(path: Path, text: str) -> None:
    with open(path, "a", newline="") as file:
        file.write(text)


def rotate(path: Path, keep: int = 5) -> None:
    """clicks.log.1 becomes clicks.log.2 and so on; the log itself clicks.log.1."""
    for number in range(keep, 0, -1):
        old = Path(f"{path}.{number}")
        if old.exists():
            os.replace(old, f"{path}.{number + 1}")
    if path.exists():
        os.replace(path, f"{path}.1")
