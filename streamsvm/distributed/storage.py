"""Where workers keep dual variables while a cluster learns, and write predictions: places that all machines see."""

from pathlib import Path

from streamsvm.config import Settings, expand
from streamsvm.distributed.team import Team
from streamsvm.errors import ConfigError, SourceError
from streamsvm.io.files import in_directory, is_file
from streamsvm.io.urls import is_local, redact_url


def refuse_unseen(url: str, remedy: str) -> None:
    """SourceError if a file that a worker has written is not there for the driver: then it is on the worker's disk."""
    if not is_file(url):
        raise SourceError(
            f"{redact_url(url)}: a worker has written this file, and it is not seen here: {remedy} must be a directory "
            "that all machines share, or a bucket"
        )


def dual_storage(settings: Settings, team: Team) -> str:
    """A directory or url; ConfigError if there is none that machines of a cluster would share."""
    given = settings.cluster.storage or settings.checkpoint.dir
    if given:
        place = expand(given)
        return in_directory(str(Path(place).absolute()) if is_local(place) and "://" not in place else place, "dual")
    if team.cluster.home is not None:
        return str(team.cluster.home / "dual")
    raise ConfigError(
        "solver dcd keeps its dual variables where all workers see them: name a directory or url with "
        "--set cluster.storage=s3://bucket/run, or --checkpoint; or use --solver newton"
    )
