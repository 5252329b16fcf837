"""`follow` in a process of its own, beside a log that grows fast and is rotated often: nothing grows but the model.

    pytest tests/test_follow_soak.py -m slow        ten minutes, at 50 MB/s

By default a few seconds, at a rate that a busy machine can bear.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest
from followed import rotate
from whole_runs import lines

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")

COMMAND = [sys.executable, "-c", "from streamsvm.cli import main; main()", "follow"]
KEPT = 5  # rotated files; older ones are deleted


class Writer(threading.Thread):
    """Writes so many bytes a second, and rotates the log after so many seconds."""

    def __init__(self, log: Path, rate: float, every: float) -> None:
        super().__init__(daemon=True)
        self._log, self._rate, self._every = log, rate, every
        self._text = "".join(f"{row}\n" for row in lines(5000)).encode()
        self.rows = self.bytes = self.rotations = 0
        self.stopped = False

    def begin(self) -> None:
        """Rows with which kernels are compiled; meanwhile nothing is read, and files that are deleted are lost."""
        for _ in range(6):
            with open(self._log, "ab") as file:
                file.write(self._text)
            self.rows += 5000

    def run(self) -> None:
        begun = rotated = time.monotonic()
        file = open(self._log, "ab", buffering=0)  # noqa: SIM115
        while not self.stopped:
            now = time.monotonic()
            if self.bytes > self._rate * (now - begun):
                time.sleep(0.002)
                continue
            file.write(self._text)
            self.rows += 5000
            self.bytes += len(self._text)
            if now - rotated > self._every:
                rotated = now
                rotate(self._log, keep=KEPT)
                file.close()
                Path(f"{self._log}.{KEPT + 1}").unlink(missing_ok=True)
                file = open(self._log, "ab", buffering=0)  # noqa: SIM115
                self.rotations += 1
        file.close()


class Standing(NamedTuple):
    """What the process takes of the machine, and how it goes."""

    memory: int  # anonymous, in bytes
    descriptors: int
    threads: int
    lag: float
    rows: float


def standing(process: int, port: int) -> Standing:
    status = Path(f"/proc/{process}/status").read_text()
    memory, threads = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("RssAnon", "Threads"))  # type: ignore[index]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    figures = dict(re.findall(r"^(streamsvm_\w+) (\S+)$", text, re.MULTILINE))
    descriptors = len(os.listdir(f"/proc/{process}/fd"))
    lag, rows = float(figures.get("streamsvm_lag_bytes", 0)), float(figures.get("streamsvm_rows_total", 0))
    return Standing(1024 * memory, descriptors, threads, lag, rows)


def soak(place: Path, *, rate: float, seconds: float, every: float) -> list[Standing]:
    """Follow a log of so many bytes a second; returns how it stood, ten times or more often, and in the end."""
    log = place / "clicks.log"
    writer = Writer(log, rate, every)
    writer.begin()
    more = ["--metrics", "0", "--every", "1s", "--rotate-wait", "0.2", "--memory", "200MB", "--set", "follow.idle=0.5"]
    command = [*COMMAND, str(log), "-o", str(place / "m.safetensors"), *more]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = []
            while not (found := re.search(r"127.0.0.1:(\d+)/metrics", line := process.stderr.readline())):
                said.append(line)
                assert line, "".join(said)
            rest = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)  # type: ignore[arg-type]
            rest.start()
            port, seen = int(found[1]), []
            deadline = time.monotonic() + 120
            while standing(process.pid, port).rows < 20_000:  # kernels are compiled, or loaded
                assert time.monotonic() < deadline and process.poll() is None, "".join(said)
                time.sleep(0.1)
            writer.start()
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                seen.append(standing(process.pid, port))
                time.sleep(min(1.0, seconds / 12))
            writer.stopped = True
            writer.join()
            deadline = time.monotonic() + 60
            while (last := standing(process.pid, port)).rows < writer.rows:
                assert time.monotonic() < deadline, f"{last}, {writer.rows} rows written\n{''.join(said)}"
                time.sleep(0.1)
            assert last.rows == writer.rows and last.lag == 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, "".join(said)
            rest.join()
            assert not [line for line in said if "warning" in line and "rows are not what they were" not in line], said
        finally:
            writer.stopped = True
            process.kill()
    assert writer.rotations > seconds / every / 2
    return [*seen, last]


def check(seen: list[Standing], rate: float) -> None:
    half = len(seen) // 2
    early, late = seen[:half], seen[half:]
    assert max(s.memory for s in late) < max(s.memory for s in early) + 20e6
    assert max(s.descriptors for s in late) <= max(s.descriptors for s in early) + 2
    assert max(s.threads for s in late) <= max(s.threads for s in early) + 2
    assert max(s.lag for s in late) < 3.0 * rate  # three seconds behind: it waits for late lines of rotated files


@pytest.mark.full
def test_nothing_grows(tmp_path: Path) -> None:
    check(soak(tmp_path, rate=5e6, seconds=6.0, every=1.0), 5e6)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_minutes(tmp_path: Path) -> None:
    check(soak(tmp_path, rate=50e6, seconds=float(os.environ.get("STREAMSVM_SOAK_SECONDS", 600)), every=10.0), 50e6)
