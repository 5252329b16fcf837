"""What a run tells about itself while it goes on. Solvers never print: whoever runs them listens."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Together(NamedTuple):
    """Of a run on a cluster: who is there, and what it has cost so far to agree."""

    workers: int
    rounds: int  # exchanges of vectors in which all shards took part
    sent: int  # bytes of vectors that went to workers and came from them


class Progress(NamedTuple):
    """Where a run stands.

    `loss` and `error` are those of the current pass, each row predicted before it is learned; where there is an
    `objective`, they are those of the weights that it belongs to, over all rows.
    """

    pass_number: int
    passes: int
    examples: int  # learned so far, all passes
    bytes: int  # read so far, all passes
    features: int  # (index, value) pairs learned so far, all passes
    loss: float | None
    error: float | None
    weight: float  # of the rows of this pass
    seconds: float
    fraction: float  # of the current pass; 0 where unknown
    objective: float | None = None
    dual: float | None = None  # no weights have an objective below
    gap: float | None = None  # relative to the objective
    recent: Mapping[str, float | None] | None = None  # of a log that is followed: how it goes now
    cluster: Together | None = None


def several(count: int, what: str) -> str:
    """So many of them, in words.

    >>> several(1, "worker"), several(1200, "row")
    ('1 worker', '1,200 rows')
    """
    return f"{count:,} {what}{'s' if count != 1 else ''}"


class Listener(Protocol):
    """Receives what happens during a run."""

    def note(self, text: str) -> None:
        """Something the user should know: a choice that was made, a warning."""

    def progress(self, now: Progress) -> None:
        """Called often; whoever shows it decides how often that is."""


class Silent:
    """Listens to nothing."""

    def note(self, text: str) -> None:
        pass

    def progress(self, now: Progress) -> None:
        pass
