"""What runs on a cluster have in common: whom they ask for rows, and what they tell of the workers."""

from typing import Any

from streamsvm.distributed.feed import ClusterFeed
from streamsvm.distributed.passes import ClusterPasses
from streamsvm.distributed.watch import Watch
from streamsvm.progress import Progress
from streamsvm.report.recording import Recording
from streamsvm.runs import Run


class ClusterRun(Run):
    """A run whose rows are with workers, which are watched."""

    passes: ClusterPasses

    def new_feed(self) -> ClusterFeed:
        return ClusterFeed(self.settings, self.passes, self.listener.note, self.initial, self.memory)

    @property
    def watch(self) -> Watch:
        return self.passes.team.cluster.watch

    def show_as_heard(self) -> None:
        """From now on, progress is told whenever a worker tells something."""
        self.passes.team.cluster.heard = lambda rows, read: self.listener.progress(self.progress())

    def reading(self) -> Progress:
        return super().reading()._replace(cluster=self.watch.together)

    def figures_of_cluster(self) -> dict[str, Any]:
        """Who has worked, and what it cost, as `--json` prints it; a listener that records gets all that is known."""
        watch, team = self.watch, self.passes.team
        record = watch.crew.record(self.started)
        if isinstance(self.listener, Recording):
            self.listener.crew = record
        return {
            "workers": watch.crew.present,
            "threads": watch.crew.threads,
            "shards": team.count,
            "rounds": watch.rounds,
            "sent": watch.sent,
            "reading_seconds": self.passes.seconds,
            "busy": record.busy,
            "lost": sum(worker.gone is not None for worker in record.workers),
            "came_later": sum(worker.late for worker in record.workers),
        }
