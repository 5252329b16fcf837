"""What a peer is: a command to train from a text file, and a way to test its model outside the clock."""

from pathlib import Path
from typing import Protocol, runtime_checkable

from data import Dataset
from process import Command

WORKERS = Path(__file__).parent.parent / "workers"


@runtime_checkable
class Peer(Protocol):
    """A program that goes from a text file to a model on disk."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> str:
        """For the report: what it was told to do."""
        ...

    def available(self) -> str | None:
        """None, or the reason why it cannot run here."""
        ...

    def train(self, data: Dataset, model: Path, passes: int) -> Command:
        """The whole job: start, read the text, learn, write the model."""
        ...

    def test_error(self, model: Path, test: Dataset) -> float:
        """The share of wrong labels on `test`. Never timed."""
        ...


@runtime_checkable
class InRam(Protocol):
    """A program that holds all rows in memory and times its own passes, because reading would drown them."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> str: ...

    def available(self) -> str | None: ...

    def pass_seconds(self, data: Dataset, passes: int) -> float:
        """Seconds of one further pass, by its own clock, reading left out."""
        ...
