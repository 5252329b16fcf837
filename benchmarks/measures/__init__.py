"""The questions asked, one function each: a Bench goes in, a Section comes out."""

from collections.abc import Callable

from bench import Bench, Section
from measures.accuracy import compare_errors
from measures.certified import certified, certified_real
from measures.checkpoints import checkpoints
from measures.choice import choice
from measures.classes import class_pace, every_class
from measures.cluster import cluster
from measures.defaults import defaults
from measures.end_to_end import end_to_end, steady_state
from measures.estimators import estimators
from measures.gaps import gap_curves
from measures.kernels import kernels
from measures.map_rates import map_rates
from measures.memory import memory
from measures.parsing import text_to_arrays
from measures.passes import further_passes
from measures.probabilities import probabilities
from measures.rates import pass_rates
from measures.remote import remote
from measures.solvers import every_solver
from measures.startup import start_up
from measures.tables import tables_clicks, tables_dense
from measures.tuning import tuning

MEASURES: dict[str, Callable[[Bench], Section]] = {
    "startup": start_up,
    "end_to_end": end_to_end,
    "steady_state": steady_state,
    "passes": further_passes,
    "parsing": text_to_arrays,
    "memory": memory,
    "accuracy": compare_errors,
    "defaults": defaults,
    "solvers": every_solver,
    "rates": pass_rates,
    "tuning": tuning,
    "checkpoints": checkpoints,
    "certified": certified,
    "certified_real": certified_real,
    "choice": choice,
    "gap": gap_curves,
    "classes": every_class,
    "classes_pace": class_pace,
    "probabilities": probabilities,
    "tables_dense": tables_dense,
    "tables_clicks": tables_clicks,
    "remote": remote,
    "estimators": estimators,
    "kernels": kernels,
    "map_rates": map_rates,
    "cluster": cluster,
}
