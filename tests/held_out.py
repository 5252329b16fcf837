"""Which rows of a source are held out: a slow twin of what passes.py marks."""

from typing import Any

import numpy as np

BITS = 2**64 - 1


def held_out(rows: int, every: int) -> "np.ndarray[Any, Any]":
    """One row in each run of `every`, at the place that SplitMix64 says for the number of the run's first row."""
    held = np.zeros(rows, bool)
    for first in range(0, rows, every):
        bits = (first + 0x9E3779B97F4A7C15) & BITS
        bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & BITS
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & BITS
        bits ^= bits >> 31
        place = first + ((bits >> 32) * every >> 32)
        if place < rows:
            held[place] = True
    return held
