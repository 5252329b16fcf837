"""The file of names beside a model: a Parquet table of index, sign and name, whose SHA-256 the model keeps."""

import hashlib
import io
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamsvm.errors import ModelError, SourceError
from streamsvm.io.files import read_whole, written_atomically
from streamsvm.io.urls import names_place


class StoredNames(NamedTuple):
    """What a file of names holds; an index may have several."""

    indices: np.ndarray[Any, Any]
    signs: np.ndarray[Any, Any]
    names: list[str]


def save_names(model: str, named: Any) -> dict[str, Any]:
    """Write the names of a model that is about to be saved; returns what the model keeps of them."""
    table = pa.table(
        {
            "index": pa.array(named.indices, pa.uint32()),
            "sign": pa.array(named.signs, pa.int8()),
            "name": pa.array(named.names, pa.string()),
        }
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    content = buffer.getvalue()
    with written_atomically(names_place(model)) as out:
        out.write(content)
    return {"sha256": hashlib.sha256(content).hexdigest(), "count": len(named.names)}


def load_names(model: str, kept: dict[str, Any]) -> StoredNames:
    """The names of a model; ModelError if the file is gone, or is not the one that was written with the model."""
    place = names_place(model)
    try:
        content = read_whole(place)
    except SourceError as error:
        raise ModelError(f"the model has names of features, but their file cannot be read: {error}") from error
    if hashlib.sha256(content).hexdigest() != kept["sha256"]:
        raise ModelError(f"{place}: these are not the names that were saved with the model")
    table = pq.read_table(io.BytesIO(content))
    return StoredNames(table["index"].to_numpy(), table["sign"].to_numpy(), table["name"].to_pylist())
