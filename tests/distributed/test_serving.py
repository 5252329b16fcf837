"""evaluate and predict on two real worker processes: the same figures, lines and messages as on one machine."""

import gzip
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("distributed")

from streamsvm.distributed import opening as door
from streamsvm.distributed import serving
from streamsvm.distributed.cluster import Cluster
from streamsvm.distributed.opening import opened_cluster
from streamsvm.distributed.serving_work import Packed, Texts
from streamsvm.evaluate import Scored
from streamsvm.model import load_model

# Another cluster may run on this machine; Dask then takes another port for its own pages, and says so.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Port [0-9]+ is already in use"),
    pytest.mark.filterwarnings("ignore:unclosed <socket.* laddr=.'0.0.0.0', 0:ResourceWarning"),  # for the first port
]

ROWS = 400
ON = ("--cluster", "local:2", "--set", "cluster.shards=7")  # more shards than are in flight at a time


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with opened_cluster("local:2", None, 60.0, lambda text: None) as opened:
        yield opened._client


@pytest.fixture
def cli(run: Any, client: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Commands, of which those with --cluster have the workers of these tests, and start none.

    The workers were started in another directory than the commands are."""
    monkeypatch.setattr(door, "_connected", lambda distributed, at, home: nullcontext(client))
    return run


def write_libsvm(path: str, labels: tuple[int, ...] = (-1, 1), seed: int = 0) -> None:
    """Rows of different lengths, with sums that depend on their order."""
    rng = np.random.default_rng(seed)
    with open(path, "w") as file:
        for _ in range(ROWS):
            indices = np.sort(rng.choice(40, rng.integers(1, 9), replace=False)) + 1
            values = rng.normal(size=len(indices))
            label = labels[int(np.clip(values.sum() / 3 + len(labels) / 2, 0, len(labels) - 1))]
            file.write(f"{label} {' '.join(f'{k}:{v:.7g}' for k, v in zip(indices, values, strict=True))}\n")


def table(rows: int = ROWS, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    return pa.table(
        {
            "id": np.arange(rows) + 1000 * seed,
            "y": ["no" if v + e < 0 else "yes" for v, e in zip(x, rng.normal(size=rows), strict=True)],
            "x": x,
            "ad": [f"ad{k}" for k in rng.integers(0, 9, rows)],
            "site": [("", "news", "mail", "Ωμέγα")[k] for k in rng.integers(0, 4, rows)],
        }
    )


def done(run: Any, *words: str) -> str:
    code, out, err = run(*words)
    assert code == 0, err
    return str(out)


def make_tables(run: Any) -> None:
    """The same kind of table in all formats, of CSV three files, and a model."""
    pq.write_table(table(), "t.parquet", row_group_size=90)
    done(run, "convert", "t.parquet", "t.jsonl")
    for part in range(3):
        pq.write_table(table(150, part + 1), "part.parquet")
        done(run, "convert", "part.parquet", f"t-{part}.csv")
    train = ("train", "t.parquet", "--label", "y", "--ignore", "id,site", "--loss", "logistic", "-q", "-o", "m.st")
    done(run, *train)


# Figures.


@pytest.mark.parametrize("labels", [(-1, 1), (1, 2, 3, 5)], ids=["two", "four"])
def test_figures_are_those_of_one_machine_to_the_last_bit(cli: Any, labels: tuple[int, ...]) -> None:
    write_libsvm("d.svm", labels)
    done(cli, "train", "d.svm", "--loss", "logistic", "-q", "-o", "m.st")
    here = done(cli, "evaluate", "m.st", "d.svm", "--json")
    assert json.loads(here)["examples"] == ROWS and 0 <= json.loads(here)["error"] < 0.9
    assert done(cli, "evaluate", "m.st", "d.svm", "--json", *ON) == here
    assert done(cli, "evaluate", "m.st", "d.svm", "--json", "--cluster", "local:2") == here


def test_slices_and_tables(cli: Any) -> None:
    make_tables(cli)
    for data in (["t.parquet"], ["t.jsonl"], ["t-0.csv", "t-1.csv", "t-2.csv"]):
        here = done(cli, "evaluate", "m.st", *data, "--by", "site", "--json")
        assert set(json.loads(here)["slices"]) == {"news", "mail", "Ωμέγα", "(missing)"}
        assert done(cli, "evaluate", "m.st", *data, "--by", "site", "--json", *ON) == here
    done(cli, "evaluate", "m.st", "t.parquet", "--report", "r.html", *ON)
    assert "<html" in Path("r.html").read_text(encoding="utf-8")


def test_classes_that_the_model_does_not_know(cli: Any) -> None:
    write_libsvm("d.svm")
    done(cli, "train", "d.svm", "-q", "-o", "m.st")
    write_libsvm("more.svm", (-1, 1, 4, 3))
    here = cli("evaluate", "m.st", "more.svm")
    assert here[0] == 4 and "row " in here[2]
    assert cli("evaluate", "m.st", "more.svm", *ON) == here
    skip = ("evaluate", "m.st", "more.svm", "--unknown-classes", "skip", "--json")
    here = done(cli, *skip)
    assert json.loads(here)["unknown_classes"].keys() == {"3", "4"}
    assert done(cli, *skip, *ON) == here


def test_texts_that_the_model_does_not_know(cli: Any) -> None:
    make_tables(cli)
    text = Path("t.jsonl").read_text(encoding="utf-8")
    Path("more.jsonl").write_text(text.replace('"yes"', '"perhaps"', 20), encoding="utf-8")
    skip = ("evaluate", "m.st", "more.jsonl", "--unknown-classes", "skip", "--by", "site", "--json")
    here = done(cli, *skip)
    assert json.loads(here)["unknown_classes"] == {"perhaps": 20}
    assert done(cli, *skip, *ON) == here


def test_texts_on_their_way() -> None:
    column = ["a", "", "b", "a", "a"]
    packed = Texts.packed(column)
    assert packed is not None and packed.different == ["a", "", "b"] and packed.unpacked() == column
    assert Texts.packed(None) is None


def test_rows_on_their_way_are_copies() -> None:
    """Readers use the memory of a block again; here all shards are too small for a second block."""
    rows = Scored(np.zeros(3), np.ones(3, np.float32), np.ones(3, np.float32))
    sent = Packed.of(rows).unpacked()
    rows.labels[:] = rows.weights[:] = 7.0
    assert sent.labels.tolist() == sent.weights.tolist() == [1.0] * 3


# Predictions.


@pytest.mark.parametrize("wish", [[], ["--scores"], ["--probabilities"]], ids=["labels", "scores", "probabilities"])
def test_parts_together_are_the_file_of_one_machine(cli: Any, wish: list[str]) -> None:
    write_libsvm("d.svm")
    done(cli, "train", "d.svm", "--loss", "logistic", "-q", "-o", "m.st")
    done(cli, "predict", "m.st", "d.svm", "-o", "one.txt", *wish)
    assert done(cli, "predict", "m.st", "d.svm", "-o", "out/part-*.txt", *wish, *ON) == ""
    parts = sorted(Path("out").iterdir())
    assert [part.name for part in parts] == [f"part-{number:05d}.txt" for number in range(7)]
    assert b"".join(part.read_bytes() for part in parts) == Path("one.txt").read_bytes()


@pytest.mark.parametrize("data", ["t.jsonl", "t-?.csv"])
def test_parts_of_a_table_in_text(cli: Any, data: str) -> None:
    make_tables(cli)
    words = ("predict", "m.st", data, "--keep", "id,site", "--scores", "--probabilities")
    for ending in ("csv", "tsv.gz", "jsonl"):
        read = gzip.decompress if ending.endswith("gz") else bytes
        done(cli, *words, "-o", f"one.{ending}")
        done(cli, *words, "-o", f"out/*.{ending}", *ON)
        parts = sorted(Path("out").glob(f"*.{ending}"))
        assert len(parts) == (7 if data == "t.jsonl" else 3)
        together = read(b"".join(part.read_bytes() for part in parts))  # gzip files may follow each other
        assert together == read(Path(f"one.{ending}").read_bytes())


def test_parts_of_parquet_are_tables(cli: Any) -> None:
    make_tables(cli)
    words = ("predict", "m.st", "t.parquet", "--keep", "id,x", "--scores")
    done(cli, *words, "-o", "one.parquet")
    done(cli, *words, "-o", "out/part-*.parquet", *ON)
    parts = sorted(Path("out").iterdir())
    assert len(parts) == 5  # row groups
    assert pa.concat_tables(pq.read_table(part) for part in parts).equals(pq.read_table("one.parquet"))


# Rows that are bad.


def spoil(path: str, *lines: int) -> None:
    text = Path(path).read_text().splitlines()
    for line in lines:
        text[line - 1] = "1 nonsense"
    Path(path).write_text("\n".join(text) + "\n")


def test_bad_rows_are_named_and_counted_as_on_one_machine(cli: Any) -> None:
    write_libsvm("d.svm")
    done(cli, "train", "d.svm", "-q", "-o", "m.st")
    spoil("d.svm", 200, 333, 390)
    here = cli("evaluate", "m.st", "d.svm")
    assert here[0] == 4 and "d.svm:200: " in here[2]
    assert cli("evaluate", "m.st", "d.svm", *ON) == here
    code, _, err = cli("predict", "m.st", "d.svm", "-o", "out/part-*.txt", *ON)
    assert (code, err) == (here[0], here[2]) and list(Path("out").iterdir()) == []

    skip = ("--on-bad-row", "skip")
    here = cli("evaluate", "m.st", "d.svm", *skip)
    code, out, err = cli("evaluate", "m.st", "d.svm", *skip, *ON)
    assert (code, out) == here[:2] and here[2].strip() in err and "skipped 3 " in err
    done(cli, "predict", "m.st", "d.svm", *skip, "-o", "one.txt")
    code, _, err = cli("predict", "m.st", "d.svm", *skip, "-o", "out/part-*.txt", *ON)
    assert code == 0 and "warning: skipped 3 malformed rows: d.svm:200: " in err
    assert b"".join(part.read_bytes() for part in sorted(Path("out").iterdir())) == Path("one.txt").read_bytes()

    few = (*skip, "--set", "data.max_bad_rows=2")  # no shard has more than that
    code, _, err = cli("evaluate", "m.st", "d.svm", *few, *ON)
    assert code == 4 and "d.svm:390: " in err and "more than 2 bad rows skipped" in err
    code, _, err = cli("predict", "m.st", "d.svm", *few, "-o", "few/part-*.txt", *ON)
    assert code == 4 and list(Path("few").iterdir()) == []


# What is refused, and how much is done at a time.


def test_outputs_that_cannot_be(cli: Any) -> None:
    write_libsvm("d.svm")
    done(cli, "train", "d.svm", "-q", "-o", "m.st")
    for output in ([], ["-o", "one.txt"], ["-o", "*/part.txt"], ["-o", "*/part-*.txt"]):
        code, _, err = cli("predict", "m.st", "d.svm", *output, *ON)
        assert code == 2 and "-o out/part-*.csv" in err
    both = ("--scores", "--probabilities", "-o", "part-*.txt")
    Path("old-00012.txt").write_text("3\n")
    code, _, err = cli("predict", "m.st", "d.svm", "-o", "old-*.txt", *ON)
    assert code == 3 and "old-00012.txt: there are parts of this name already" in err
    assert [path.name for path in Path().glob("old-*")] == ["old-00012.txt"]
    done(cli, "train", "d.svm", "-q", "--loss", "logistic", "-o", "m.st")
    assert cli("predict", "m.st", "d.svm", *both, *ON)[0] == 2
    code, _, err = cli("predict", "m.st", "d.svm", "-o", "part-*.txt", "--set", "data.limit=5", *ON)
    assert code == 2 and "data.limit" in err


def test_without_dask_it_is_said_what_to_install(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write_libsvm("d.svm")
    done(run, "train", "d.svm", "-q", "-o", "m.st")
    monkeypatch.setitem(sys.modules, "distributed", None)
    for words in (("evaluate", "m.st", "d.svm"), ("predict", "m.st", "d.svm", "-o", "part-*.txt")):
        code, _, err = run(*words, *ON)
        assert code == 2 and "pip install 'streamsvm[dask]'" in err


def test_shards_are_small_and_few_are_in_flight(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write_libsvm("d.svm")
    done(cli, "train", "d.svm", "-q", "-o", "m.st")
    asked: list[int] = []
    each = Cluster.each
    monkeypatch.setattr(
        Cluster, "each", lambda self, work, calls: (asked.append(len(calls)), each(self, work, calls))[1]
    )
    monkeypatch.setattr(serving, "SHARD_BYTES", Path("d.svm").stat().st_size // 9)
    _, _, err = cli("evaluate", "m.st", "d.svm", "--cluster", "local:2")
    assert asked == [4, 4, 2] and "4 of 10 shards, " in err and f"10 of 10 shards, {ROWS} rows" in err


# For those who have a client.


def test_with_a_client(cli: Any, client: Any) -> None:
    write_libsvm("d.svm")
    done(cli, "train", "d.svm", "-q", "-o", "m.st")
    model, given = load_model("m.st"), {"cluster.shards": 3, "data.on_bad_row": "skip"}
    here = json.loads(done(cli, "evaluate", "m.st", "d.svm", "--json"))
    assert serving.evaluate_on(client, model, "d.svm") == here
    done(cli, "predict", "m.st", "d.svm", "--scores", "-o", "one.txt")
    assert serving.write_predictions_on(client, model, ["d.svm"], "p/*.txt", scores=True, overrides=given) == ROWS
    text = b"".join(part.read_bytes() for part in sorted(Path("p").iterdir()))
    assert text == Path("one.txt").read_bytes() and len(list(Path("p").iterdir())) == 3
    spoil("d.svm", 7, 300)
    assert serving.evaluate_on(client, model, "d.svm", overrides=given)["bad_rows"] == 2
