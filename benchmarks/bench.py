"""What every measure shares: the peers and files of this run, and the shape of an answer."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data import Dataset
from peers import InRam, Peer, StreamSvm
from process import PeerFailedError, Run, Timing, run, warm_pages

Cell = str | float | None


@dataclass(frozen=True)
class Check:
    """One promise: a measured number beside its target."""

    what: str
    value: float
    target: float
    unit: str = "x"
    at_least: bool = True
    note: str = ""

    @property
    def met(self) -> bool | None:
        if math.isnan(self.value):
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


@dataclass
class Section:
    """The answer of one measure: a table, the promises it decides, and the raw numbers for results.json."""

    key: str
    title: str
    columns: list[str]
    rows: list[list[Cell]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    decimals: int | None = None  # of every number in the table; else three significant digits

    def as_json(self) -> dict[str, Any]:
        checks = [{**asdict(check), "met": check.met} for check in self.checks]
        whole: dict[str, Any] = _without_nan({**asdict(self), "checks": checks})
        return whole


@dataclass(frozen=True)
class Choice:
    """Which sets the measure of default settings is to take, and what streamsvm is told besides."""

    sets: tuple[str, ...] = ()
    fresh: bool | None = None
    train_options: tuple[str, ...] = ()
    upper: bool = False  # boosted trees too


@dataclass
class Bench:
    """One run of the benchmark."""

    peers: list[Peer | InRam]  # those that can run here
    small: Dataset  # 1000 rows: start-up
    part: Dataset  # a slice for what is slow
    main: Dataset
    big: Dataset
    test: Dataset
    folder: Path  # where generated files are kept
    dense_rows: int  # of the tables
    click_rows: int
    work: Path
    repeat: int
    passes: int
    budget: str
    real: Path | None
    losses: list[str]  # of the problems that exact solvers are given, and C of each
    costs: list[float]
    quick: bool  # figures that mean nothing, soon
    say: Callable[[str], None]
    choice: Choice = Choice()

    @property
    def trainers(self) -> list[Peer]:
        return [peer for peer in self.peers if isinstance(peer, Peer)]

    def peer(self, name: str) -> Peer | InRam | None:
        return next((peer for peer in self.peers if peer.name == name), None)

    @property
    def streamsvm(self) -> StreamSvm | None:
        found = self.peer("streamsvm")
        return found if isinstance(found, StreamSvm) else None

    def model(self, peer: Peer, data: Dataset, passes: int) -> Path:
        return self.work / f"{peer.name}-{data.name}-{passes}.model"

    def train(self, peer: Peer, data: Dataset, passes: int = 1, *, sample_memory: bool = False) -> Run:
        """One training run with the pages of its file in memory; the model is written anew each time."""
        model = self.model(peer, data, passes)
        model.unlink(missing_ok=True)
        warm_pages(data.vw if peer.name == "vw" else data.svm)
        return run(peer.train(data, model, passes), sample_memory=sample_memory)

    def warm_up(self) -> None:
        """Let every trainer run once on 1000 rows, further passes too, so that no clock meets a compiler."""
        for peer in list(self.trainers):
            try:
                for passes in (1, 2):
                    self.train(peer, self.small, passes)
            except PeerFailedError as error:
                self.say(f"  {peer.name} cannot train and is left out: {error}")
                self.peers.remove(peer)


def _without_nan(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def ratio(above: float, below: float) -> float:
    """Not a number where noise, or a failure, left nothing to divide by."""
    return above / below if below > 0 else float("nan")


def failures(timings: dict[str, Timing]) -> list[str]:
    return [f"{name}: {timing.failure}" for name, timing in timings.items() if timing.failure]
