"""Where a shard stands, in storage that all workers see: every round writes new files, and never over old ones.

A file has the dual variables of a shard's rows, and a vector in which it remembers how far it was from the others.

A worker reads the version that the driver has committed and writes another under a name of its own. The driver commits
weights and names together, from the same answers. So it does not matter how often a task was run, or on which worker,
or that one of them died: weights and dual variables always belong together, and what they prove stays true.
"""

import secrets
from collections.abc import Iterable

import numpy as np

from streamsvm.batch import Float64s
from streamsvm.errors import ModelError
from streamsvm.io.files import in_directory, names_in, read_whole, remove, written_atomically
from streamsvm.io.tensors import Kind, load, save

KIND = Kind("streamsvm-dual", 2, "file of dual variables")
ENDING = ".dual"


def new_name(run: str, shard: int, number: int) -> str:
    """A name that nobody else has, not even another run of the same task."""
    return f"{run}-{shard:05}-{number:06}-{secrets.token_hex(4)}{ENDING}"


def save_version(place: str, name: str, alpha: Float64s, memory: Float64s) -> None:
    with written_atomically(in_directory(place, name)) as out:
        save(KIND, {}, {"alpha": np.asarray(alpha), "memory": memory}, out.write)


def load_version(place: str, name: str, shape: tuple[int, ...]) -> tuple[Float64s, Float64s]:
    url = in_directory(place, name)
    arrays = load(read_whole(url), url, [KIND]).arrays
    alpha: Float64s = arrays["alpha"]
    if alpha.shape != shape:
        raise ModelError(f"{url}: has {list(alpha.shape)} dual variables, but the shard has {list(shape)}")
    return alpha, arrays["memory"]


def remove_versions(place: str, run: str, kept: Iterable[str] = ()) -> None:
    """Remove the files of a run but those that are still wanted."""
    wanted = set(kept)
    for name in names_in(place):
        if name.startswith(f"{run}-") and name.endswith(ENDING) and name not in wanted:
            remove(in_directory(place, name))
