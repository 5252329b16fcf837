"""The map of a run: what the settings want, from which rows it is made, how it comes out of a model or a checkpoint."""

from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.batch import Batch, Float32s, Int64s
from streamsvm.config import Settings
from streamsvm.errors import ModelError
from streamsvm.features.maps.wish import Wish
from streamsvm.model import Model
from streamsvm.offered import KERNEL
from streamsvm.shuffle import mixed, random_places, taken

if TYPE_CHECKING:
    from streamsvm.features.maps.base import RowMap

SAMPLE_ROWS = 20_000  # from which a map is made
FEWEST_ROWS = 100  # from which one can be made well
SEED = 0x6D6170  # tells these random numbers from others of the same seed


def map_wish(settings: Settings) -> Wish | None:
    """What the settings say of the map; None if there is to be none."""
    if not settings.mapped:
        return None
    wanted, learner, scale = settings.map, settings.solver.name in KERNEL, settings.features.scale
    return Wish(
        "dense" if learner else wanted.kind,
        wanted.size,
        None if wanted.gamma == "auto" else wanted.gamma,
        wanted.degree,
        wanted.coef0,
        wanted.landmarks == "kmeans",
        "range" if scale == "auto" else scale,
        mixed(settings.run.seed, SEED),
        getattr(settings.solver, "kernel", "rbf"),
    )


def map_of(wish: Wish | None, initial: Model | None) -> "RowMap | None":
    """The map of the model that learning goes on from."""
    if initial is None:
        return None
    if initial.map is None and wish is not None:
        raise ModelError("the initial model was trained without a map, and learning can only go on without one")
    if wish is None or wish.kind != "dense" or initial.map is None:
        return initial.map
    from streamsvm.features.maps.base import RowMap
    from streamsvm.features.maps.plain import Plain

    return RowMap(initial.map.spread, Plain(initial.map.spread.width))


def learner_map(settings: Settings, rows: "RowMap", supports: Float32s) -> "RowMap":
    """What the rows of a model go through that a kernel learner has learned: nearness to its supports."""
    from streamsvm.features.maps.base import RowMap
    from streamsvm.features.maps.landmarks import Kernel, Prototypes

    solver: Any = settings.solver
    name = "gaussian" if solver.kernel == "rbf" else solver.kernel
    return RowMap(rows.spread, Prototypes(supports, Kernel(name, 1.0, solver.degree, solver.coef0)))


def supports_of(settings: Settings, model: Model) -> Float32s:
    """The supports of a model that a kernel learner goes on from; ModelError if another kernel has learned it."""
    from streamsvm.features.maps.landmarks import Prototypes

    inner = model.map.inner if model.map is not None else None
    if not isinstance(inner, Prototypes) or model.map is None:
        raise ModelError(
            f"the initial model is not one of a kernel learner: solver {settings.solver.name} cannot go on"
        )
    if not learner_map(settings, model.map, inner.landmarks).same_as(model.map):
        raise ModelError(f"the initial model has kernel {inner.kernel._asdict()}, and this run has another")
    return inner.landmarks


def chosen_rows(seed: int, rows: int) -> Int64s:
    """The numbers of the rows that a map is made from, rising: one at random out of each of so many equal parts."""
    if rows <= SAMPLE_ROWS:
        return np.arange(rows)
    edges = np.arange(SAMPLE_ROWS + 1) * rows // SAMPLE_ROWS
    return edges[:-1] + random_places(np.diff(edges), mixed(seed, SEED))


def first_rows(batch: Batch, held: Any) -> Batch:
    """The first rows of a stream that is read once, for a map."""
    good = batch.weights > 0.0
    if held is not None:
        good &= ~held
    return taken(batch, np.flatnonzero(good)[:SAMPLE_ROWS])


def map_state(map: "RowMap") -> dict[str, Any]:
    return {"plain": map.plain(), "arrays": map.arrays()}


def map_restored(state: dict[str, Any]) -> "RowMap":
    from streamsvm.features.maps.make import restored_map

    return restored_map(state["plain"], {name: np.array(array) for name, array in state["arrays"].items()})
