"""Room: memory that is used again as soon as nobody has it any more.

New memory costs more than what is written to it: the system has to find each page and to clear it. What is lent here
comes back when the last array that shares it is gone, on whatever thread that is.
"""

from collections import deque
from typing import Any

import numpy as np

from streamsvm.batch import Float32s

CACHE_LINE = 16  # numbers


class Room:
    """Arrays of float32 numbers. It keeps as many as were out at a time."""

    def __init__(self) -> None:
        self._free: deque[Float32s] = deque()

    def lent(self, count: int) -> Float32s:
        """An array of so many numbers, whatever they are; any thread may ask."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _aligned(count)
        if len(memory) < count:
            memory = _aligned(count)
        lent: Float32s = np.asarray(_Loan(memory, self._free))
        return lent[:count]


def _aligned(count: int) -> Float32s:
    """Memory that begins with a cache line."""
    room = np.empty(count + CACHE_LINE, np.float32)
    start = -room.ctypes.data // 4 % CACHE_LINE
    return room[start : start + count]


class _Loan:
    """What an array made of it keeps alive, and all that share its memory."""

    def __init__(self, memory: Float32s, free: deque[Float32s]) -> None:
        self.__array_interface__: dict[str, Any] = memory.__array_interface__
        self._memory = memory
        self._free = free

    def __del__(self) -> None:
        self._free.append(self._memory)
