"""A crew and a recording as if there had been a run, for tests of what the report makes of them."""

from streamsvm.crew import Record, Worker
from streamsvm.progress import Progress, Silent, Together
from streamsvm.report.recording import Recording

SLOTS = 200


def made_up_crew(count: int, *, lost: int = 0) -> Record:
    """Workers of which the later ones are slower; the first few are lost after 20 s, and others come after 25 s."""
    workers = [
        Worker(
            f"worker {k + 1}", f"10.0.{k // 250}.{k % 250}:40{k % 1000:03}", 1 + k % 2, 1 + k % 3, 1_000_000 - 900 * k,
            500_000_000, 40.0 - k / 100, 10.0 + k / 100, 25.0 if k >= count else 1.5, 20.0 if k < lost else None,
            k >= count,
        )
        for k in range(count + lost)
    ]  # fmt: skip
    rates = [[(1000.0 + 10 * k) * (1 + (slot + k) % 4) for slot in range(SLOTS)] for k in range(count + lost)]
    busy = [count * (0.6 + 0.1 * (slot % 4)) for slot in range(SLOTS)]
    return Record(workers, [1.5 + 0.25 * slot for slot in range(SLOTS + 1)], rates, busy)


def made_up_figures(record: Record, rounds: int, sent: int) -> dict[str, object]:
    """What the result of such a run has of its cluster."""
    return {
        "workers": len(record.there),
        "threads": sum(worker.threads for worker in record.there),
        "shards": len(record.workers),
        "rounds": rounds,
        "sent": sent,
        "reading_seconds": 12.3,
        "busy": record.busy,
        "lost": sum(worker.gone is not None for worker in record.workers),
        "came_later": sum(worker.late for worker in record.workers),
    }


def recorded_proofs(recording: Recording, rounds: int, sent: int) -> None:
    """A proof after each round, as progress tells it."""
    for k in range(rounds):
        gap = 0.5 / (1 + k) ** 1.5
        recording.progress(
            Progress(
                2 * k,
                1000,
                1000 * k,
                8000 * k,
                1000 * k,
                0.3,
                0.1,
                1000.0,
                2.0 + k,
                0.0,
                0.4,
                0.4 * (1 - gap),
                gap,
                cluster=Together(2, k + 1, sent * (k + 1) // rounds),
            )  # fmt: skip
        )


def new_recording() -> Recording:
    return Recording(Silent(), "streamsvm train rows.svm --cluster tcp://scheduler:8786")
