"""How fast data is read, as someone who looks at it now would say."""

from collections import deque

from streamsvm.progress import Progress, several

LAST = 5.0  # seconds that are looked back
APART = 0.1  # seconds between two moments that are remembered


class Pace:
    """MB/s of the last seconds; where bytes are counted from zero again, it begins again."""

    def __init__(self) -> None:
        self._moments: deque[tuple[float, int]] = deque()

    def rate(self, now: Progress) -> float | None:
        moments = self._moments
        if moments and now.bytes < moments[-1][1]:
            moments.clear()
        if not moments or now.seconds - moments[-1][0] >= APART:
            moments.append((now.seconds, now.bytes))
        while len(moments) > 2 and moments[0][0] < now.seconds - LAST:
            moments.popleft()
        seconds, read = moments[0]
        return (now.bytes - read) / 1e6 / (now.seconds - seconds) if now.seconds > seconds else None


def of_how_much(now: Progress) -> str:
    """The megabytes that were read, and of how many.

    >>> of_how_much(Progress(1, 1, 0, 150_000_000, 0, None, None, 0.0, 2.0, 0.5))
    '150.0 of 300.0 MB'
    """
    whole = f" of {now.bytes / now.fraction / 1e6:,.1f}" if now.fraction else ""
    return f"{now.bytes / 1e6:,.1f}{whole} MB"


def moving(now: Progress, rate: float | None) -> str:
    """What moves before there are figures, and after that too: in words, to stand beside a bar or in a log."""
    parts = [of_how_much(now) if stage(now) == "reading" else f"{now.examples:,} examples"]
    parts += [f"{rate:,.0f} MB/s"] if rate and rate >= 0.5 else []
    if now.gap is not None:
        parts.append(f"gap {max(now.gap, 0.0):.1e}")
    elif now.loss is not None:
        parts.append(f"loss {now.loss:.4f}")
    if now.cluster is not None:
        parts.append(several(now.cluster.workers, "worker"))
    return ", ".join(parts)


def stage(now: Progress) -> str:
    """Whether data is read only to know it, or to learn from it."""
    return "reading" if now.loss is None and not now.examples and not now.weight else "learning"
