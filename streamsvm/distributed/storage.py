"""Where dual variables are kept while a cluster learns: somewhere that all workers see."""

from pathlib import Path

from streamsvm.config import Settings, expand
from streamsvm.distributed.team import Team
from streamsvm.errors import ConfigError
from streamsvm.io.files import in_directory
from streamsvm.io.urls import is_local


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
