"""dense: rows as they are spread, and nothing else, for kernel learners."""

from typing import Any

from streamsvm.batch import Float32s
from streamsvm.features.maps.base import Arrays, DenseMap, Stored


class Plain(DenseMap):
    """The rows themselves."""

    kind = "dense"

    def __init__(self, width: int) -> None:
        self.width = width

    def rows(self, given: Float32s, out: Float32s | None = None) -> Float32s:
        if out is None:
            return given
        out[:] = given
        return out

    def stored(self) -> Stored:
        return {"width": self.width}, {}

    @classmethod
    def restored(cls, plain: dict[str, Any], arrays: Arrays) -> "Plain":
        return cls(int(plain["width"]))
