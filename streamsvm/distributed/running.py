"""What a training run on a cluster has in place of the passes of one machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamsvm import interrupts
from streamsvm.checkpoint import Checkpoints
from streamsvm.config import Settings
from streamsvm.distributed.averaging import ClusterTraining
from streamsvm.distributed.fitting import ClusterFitting
from streamsvm.distributed.opening import opened_cluster
from streamsvm.distributed.passes import ClusterPasses
from streamsvm.distributed.team import Team
from streamsvm.errors import ConfigError
from streamsvm.model import Model
from streamsvm.progress import Listener, several
from streamsvm.reading import make_source, training_stream, whole_data
from streamsvm.report.recording import Recording

WORTH_SHARING = 1 << 20  # bytes: with less it does not matter that some workers have nothing to do


@contextmanager
def clustered(
    command: str, settings: Settings, listener: Listener, initial: Model | None, client: Any = None
) -> Iterator[tuple[ClusterPasses, Checkpoints]]:
    """The passes of a run on a cluster, and its checkpoints."""
    if not settings.data.train:
        raise ConfigError("there is no training data: name a file, or set data.train")
    refuse_what_needs_one_machine(settings)
    if settings.data.test:  # a typing error in its name should not be found after hours of training
        make_source(settings, settings.data.test)
    stream = training_stream(settings, listener.note)
    with (
        interrupts.noted(),
        Checkpoints(settings, f"{command} --cluster", stream.source, listener.note) as checkpoints,
        opened_cluster(settings.cluster.at or "", client, settings.cluster.timeout, listener.note) as cluster,
    ):
        if isinstance(listener, Recording):
            listener.resumed = checkpoints.state is not None
        team = Team(cluster, settings, stream, initial)
        threads = cluster.threads()
        listener.note(
            f"{several(team.count, 'shard')} of about {sum(team.sizes) / team.count / 1e6:,.1f} MB "
            f"on {several(len(threads), 'worker')} with {several(sum(threads.values()), 'thread')}"
        )
        if team.count < min(team.wanted, sum(threads.values())) and sum(team.sizes) > WORTH_SHARING:
            listener.note(
                "warning: fewer shards than threads: compressed text, CSV with quotes and Arrow files cannot be cut; "
                "more files, or Parquet with more row groups, would keep all workers busy"
            )
        try:
            yield ClusterPasses(team, listener.note), checkpoints
        finally:
            cluster.watch.crew.end()
            team.close()


def training_kind(settings: Settings) -> type[ClusterFitting] | type[ClusterTraining]:
    """The kind of run that `train` is."""
    return ClusterFitting if whole_data(settings) else ClusterTraining


def refuse_what_needs_one_machine(settings: Settings) -> None:
    """ConfigError for settings that have no meaning where rows are read in no order."""
    data, features = settings.data, settings.features
    refused = {
        "data.limit": data.limit is not None,
        "features.names": bool(features.names),
        "data.shuffle": data.shuffle not in ("auto", 0),
    }
    found = [name for name, given in refused.items() if given]
    if found:
        raise ConfigError(f"{', '.join(found)}: not on a cluster, where shards are read all at once")
