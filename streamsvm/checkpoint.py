"""Checkpoints of a run: what is in one, when one is taken, and whether a run may go on from it.

    run --snapshot--> model and state, copied --> [writer thread] --> checksum, temporary name, fsync, rename, fsync

A checkpoint holds everything that the rest of a run depends on, so that a run that was killed at any moment and goes on
ends with the same model, bit for bit, as one that was not. It holds a model too, so whoever reads models can read it.
Taking one copies numbers on the run's own thread, which takes milliseconds; the rest happens on another one. When a
disk is full or a bucket slow, learning goes on, and another attempt is made later, with the numbers of then.

A run may go on from a checkpoint of the same command with the same settings, sources and version. What cannot change
the result (memory, threads, where things are written, limits that only say when to give up) may differ.
"""

import contextlib
import json
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamsvm import __version__
from streamsvm.config import Settings, expand, format_duration, to_json_dict
from streamsvm.errors import DivergedError, ModelError, SourceError, StreamSvmError
from streamsvm.interrupts import Interrupted
from streamsvm.io.files import local_path
from streamsvm.io.generations import Generation, Generations
from streamsvm.io.identity import identity_difference
from streamsvm.io.source import Source
from streamsvm.io.tensors import Array, Content
from streamsvm.io.urls import is_local, redact_url
from streamsvm.jit import machine
from streamsvm.model import Model

FREE = (
    *("checkpoint", "output", "data.test", "run.memory", "run.threads"),
    *("cluster.at", "cluster.storage", "cluster.timeout"),
    *("data.max_bad_rows", "data.max_line", "data.max_expansion", "data.retries"),
    *(
        f"follow.{name}"
        for name in ("until_idle", "idle", "stop_after", "rotate_wait", "poll", "compressed", "metrics")
    ),
)
UNUSED = {  # settings of other commands
    "train": ("tune", "follow"),
    "train --cluster": ("tune", "follow"),
    "tune": ("follow",),
    "tune --cluster": ("follow",),
    "follow": ("tune",),
}
FIRST_RETRY = 1.0  # seconds; twice as long after each further failure
STATE = "state."  # what the names of a state's arrays begin with

Note = Callable[[str], None]
Tree = dict[str, Any]


class Snapshot(NamedTuple):
    """Where a run stands, in copies that nobody changes any more."""

    model: Model
    state: Tree  # plain values and arrays, in sections; `standing` says in figures what it is
    sync: Callable[[], None]  # brings what else the state relies on to disk


def pack(tree: Tree, prefix: str = STATE) -> tuple[Tree, dict[str, Array]]:
    """The plain values of a tree, and its arrays by their path."""
    plain: Tree = {}
    arrays: dict[str, Array] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            plain[key], inner = pack(value, f"{prefix}{key}.")
            arrays |= inner
        elif isinstance(value, np.ndarray):
            arrays[f"{prefix}{key}"] = value
        else:
            plain[key] = value
    return plain, arrays


def unpack(plain: Tree, arrays: Mapping[str, Array], prefix: str = STATE) -> Tree:
    """The tree that `pack` was given; its keys have no dots in them."""
    tree: Tree = {}
    for key, value in plain.items():
        tree[key] = unpack(value, arrays, f"{prefix}{key}.") if isinstance(value, dict) else value
    for name, array in arrays.items():
        section, _, key = name.rpartition(".")
        if f"{section}." == prefix:
            tree[key] = array
    return tree


def state_of(content: Content) -> Tree:
    """What a checkpoint says of the run: its state, and under `run` whose state that is."""
    run: Tree = json.loads(content.metadata["run"])
    return {**unpack(run.pop("state"), content.arrays), "run": run}


def standing_text(standing: Mapping[str, Any]) -> str:
    """pass 2 of 5, 3,000,000 examples"""
    if standing["stage"] == "wait":
        return "waiting for enough lines to begin with"
    if standing["stage"] == "prepare":
        return "reading the data before the first pass"
    if not standing["passes"]:
        return f"{standing['examples']:,} examples"
    whole = "all passes done" if standing["stage"] == "learned" else f"pass {standing['pass']} of {standing['passes']}"
    return f"{whole}, {standing['examples']:,} examples"


class Checkpoints:
    """The checkpoints of one run, or none if the settings name no place for them. A context manager."""

    def __init__(self, settings: Settings, command: str, source: Source, note: Note) -> None:
        self._settings = settings.checkpoint
        self._note = note
        self.wanted = self._settings.dir is not None
        self.state: Tree | None = None  # what the run goes on from
        self.found = ""  # the name of that checkpoint
        if not self.wanted:
            return
        self.identity = source.identity()
        self._files = Generations(expand(self._settings.dir or ""))
        self._run: Tree = {
            "command": command,
            "config": kept_config(settings),
            "sources": self.identity,
            "versions": {"streamsvm": __version__, "python": platform.python_version(), **machine()},
        }
        self._taken = False  # whether the place is ours
        self._last = ""  # the newest one, in words: where it stands, and its name
        self.kept_at: float | None = None  # when it was written, by time.monotonic()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._begun = self._failing = 0.0  # when the last attempt began; since when they fail
        self._retry = FIRST_RETRY
        self._told_slow = False
        self._schedule()

    def __enter__(self) -> "Checkpoints":
        if self.wanted:
            try:
                self._take()
                self._find()
            except BaseException:
                self._files.release()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        if not self.wanted:
            return
        if kind is not KeyboardInterrupt:  # a second Ctrl-C waits for nobody
            with contextlib.suppress(SourceError):  # there is a model, or another error that says more
                self._wait()
        self._files.release()
        if isinstance(error, Interrupted):
            error.kept = self._last
        elif self._last and isinstance(error, StreamSvmError) and not isinstance(error, DivergedError):
            again = "started again, it" if self._run["command"] == "follow" else "--resume"
            self._note(f"{again} goes on from {self._last}")

    @property
    def place(self) -> str:
        return str(local_path(self._files.place)) if self.local else self._files.place

    @property
    def local(self) -> bool:
        """Whether they are kept on this machine."""
        return is_local(self._files.place)

    # Going on.

    def _take(self) -> None:
        try:
            self._files.take()
            self._taken = True
        except SourceError as error:
            if self._settings.patience == 0.0 or self._settings.resume:
                raise
            self._note(f"warning: {error}; no checkpoint can be kept now, further attempts follow")

    def _find(self) -> None:
        found = self._files.newest(self._note)
        if found is None:
            if self._settings.resume:
                self._note(f"{self._files.shown} has no checkpoint yet: starting from the beginning")
            return
        with understood(found.shown):
            self._go_on(found, state_of(found.content))

    def _go_on(self, found: Generation, state: Tree) -> None:
        standing = standing_text(state["standing"])
        if self._settings.resume:
            self._refuse_other(found, state["run"], learned=state["standing"]["stage"] != "wait")
            self._last = f"{standing}, in {found.shown}"
            self._note(f"going on from {self._last}")
            self.state, self.found = state, found.shown
        elif state["standing"]["stage"] != "learned":
            raise ModelError(
                f"{self._files.shown} has a checkpoint of an unfinished run ({standing}): "
                "add --resume to go on with it, or delete it, or name another directory"
            )

    def _refuse_other(self, found: Generation, run: Tree, *, learned: bool) -> None:
        """ModelError, naming every difference, if the checkpoint is of another run than this one.

        While nothing is learned but where reading begins, other settings may be tried.
        """
        faults: list[str] = []
        if run["command"] != self._run["command"]:
            faults.append(f"it is of streamsvm {run['command']}, not {self._run['command']}")
        old, new = run["versions"], self._run["versions"]
        if old["streamsvm"] != new["streamsvm"]:
            faults.append(f"it was written by streamsvm {old['streamsvm']}, this is {new['streamsvm']}")
        if learned:
            faults += differences(run["config"], self._run["config"], (*FREE, *UNUSED.get(run["command"], ())))
        changed = identity_difference(run["sources"], self._run["sources"])
        faults += [changed] if changed else []
        if faults:
            raise ModelError(f"{found.shown}: cannot go on from this checkpoint: {'; '.join(faults)}")
        others = [f"{key} was {old.get(key)} and is now {new[key]}" for key in new if old.get(key) != new[key]]
        if others:
            self._note(f"warning: {'; '.join(others)}: the last digits may differ from those of an unbroken run")

    # Taking one.

    @property
    def settled(self) -> bool:
        """Whether none is being written, and the last attempt went well."""
        return self._thread is None and not self._failing

    def tick(self, rows: int, snapshot: Callable[[], Snapshot]) -> None:
        """Called after a batch of so many rows: takes a checkpoint if one is due, and tells how the last one went."""
        if not self.wanted:
            return
        self._rows += rows
        if self._busy():
            return
        every_rows = self._settings.every_rows
        enough = every_rows is not None and self._rows >= every_rows and not self._failing
        if enough or time.monotonic() >= self._next_time:
            self._begin(snapshot())

    def keep(self, snapshot: Callable[[], Snapshot]) -> None:
        """Take one now, and wait until it is written, or it is told that it could not be."""
        if not self.wanted:
            return
        try:
            self._wait()
            self._begin(snapshot())
            self._wait()
        except SourceError as error:
            self._note(f"warning: {error}")

    @contextlib.contextmanager
    def at_interruption(self, snapshot: Callable[[], Snapshot]) -> Iterator[None]:
        """Take a last checkpoint when a signal stops what is done in this block."""
        try:
            yield
        except Interrupted:
            self.keep(snapshot)
            raise

    def _schedule(self) -> None:
        every = self._settings.every
        self._next_time = time.monotonic() + every if every is not None else float("inf")
        self._rows = 0  # since the last one

    def _begin(self, snapshot: Snapshot) -> None:
        state, arrays = pack(snapshot.state)
        run = {**self._run, "written": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()), "state": state}
        metadata = {**snapshot.model.metadata(), "run": json.dumps(run)}
        arrays |= snapshot.model.arrays()
        text = standing_text(state["standing"])

        def write() -> None:
            try:
                if not self._taken:  # it could not be at the start
                    self._files.take()
                    self._taken = True
                snapshot.sync()
                self._last = f"{text}, in {self._files.write(metadata, arrays)}"
                self.kept_at = time.monotonic()
            except BaseException as error:
                self._error = error

        self._begun = time.monotonic()
        self._schedule()
        self._error = None
        self._thread = threading.Thread(target=write, name="streamsvm-checkpoint", daemon=True)
        self._thread.start()

    def _busy(self) -> bool:
        """Whether one is being written still; if not, how it went is told."""
        if self._thread is None:
            return False
        if self._thread.is_alive():
            self._look_at_clock()
            return True
        self._thread.join()
        self._thread = None
        self._tell()
        return False

    def _wait(self) -> None:
        """Wait for the one that is being written, as long as the patience lasts."""
        if self._thread is not None:
            for _ in self._until_patience_ends():
                self._thread.join(0.2)
                if not self._thread.is_alive():
                    break
            self._busy()

    def _until_patience_ends(self) -> Iterator[None]:
        patience = self._settings.patience
        while patience is None or time.monotonic() - self._begun <= max(patience, 60.0):
            yield

    def _look_at_clock(self) -> None:
        seconds, every = time.monotonic() - self._begun, self._settings.every
        if every is not None and seconds > every and not self._told_slow:
            self._told_slow = True
            self._note(
                f"warning: writing a checkpoint to {self._files.shown} takes longer than {format_duration(every)}: "
                "there will be fewer of them"
            )
        if self._settings.patience is not None and seconds > max(self._settings.patience, 60.0):
            raise SourceError(f"{self._files.shown}: no answer for {seconds:,.0f} s while writing a checkpoint")

    def _tell(self) -> None:
        error, now = self._error, time.monotonic()
        if error is None:
            if self._failing:
                self._note(f"checkpoints can be written again: {self._last}")
            self._failing, self._retry = 0.0, FIRST_RETRY
            return
        if not isinstance(error, SourceError):
            raise error
        self._failing = self._failing or self._begun
        patience = self._settings.patience
        if patience is not None and now - self._failing >= patience:
            limit = f" for {format_duration(patience)} (checkpoint.patience)" if patience else ""
            raise SourceError(f"no checkpoint could be written{limit}: {error}")
        kept = f"the last one is kept ({self._last})" if self._last else "there is none yet"
        self._note(f"warning: no checkpoint could be written: {error}; {kept}; next attempt in {self._retry:.0f} s")
        self._next_time = now + self._retry
        self._retry = min(2 * self._retry, max(self._settings.every or 60.0, FIRST_RETRY))


@contextlib.contextmanager
def understood(shown: str) -> Iterator[None]:
    """ModelError, naming the checkpoint, where what it says makes no sense although its checksum is right."""
    try:
        yield
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ModelError(f"{shown}: damaged checkpoint ({type(error).__name__}: {error})") from error


def kept_config(settings: Settings) -> Tree:
    """The settings without what says nothing about the model: how often a run was interrupted, what else it wrote."""
    config = to_json_dict(settings)
    del config["checkpoint"], config["output"]["report"]
    return config


def differences(old: Tree, new: Tree, free: Sequence[str] = FREE) -> list[str]:
    """What of the settings is not as it was, but for what is free to change."""
    faults = []
    before, now = dict(_flat(old)), dict(_flat(new))
    for path in dict.fromkeys([*before, *now]):
        if before.get(path) == now.get(path) or any(f"{path}.".startswith(f"{other}.") for other in free):
            continue
        if not _harmless(path, before.get(path), now.get(path), now):
            faults.append(f"{path} was {_shown(before.get(path))} and is now {_shown(now.get(path))}")
    return faults


def _harmless(path: str, old: Any, new: Any, now: Mapping[str, Any]) -> bool:
    """Changes after which the rest of a run is what it would have been had it begun with them."""
    if path == "run.cache":
        return "off" not in (old, new)
    if path == "data.on_bad_row":  # there was no bad row yet; but a cache that is kept says how it was made
        return (old, new) == ("raise", "skip") and now["run.cache"] in ("auto", "off")
    return False


def _flat(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and prefix == "":
            yield from _flat(value, f"{key}.")
        else:
            yield f"{prefix}{key}", value


def _shown(value: Any) -> str:
    return "not set" if value is None else redact_url(str(value))
