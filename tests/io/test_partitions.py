"""Tables in directories of directories, with columns in their names; and tables whose files are not all there is."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from streamsvm import load_settings, open_stream, train
from streamsvm.errors import SourceError
from streamsvm.io.partitions import keys_of, partition_columns
from streamsvm.io.parts import find_parts

ROWS = 40
YEARS, CITIES = (2013, 2014, 2015), ("New York", "Köln")
FORMATS = ("parquet", "arrow", "csv", "jsonl")


def table(year, city, *, keys=False):
    draw = np.random.default_rng(year + len(city))
    x = draw.normal(size=ROWS).round(3)
    columns = {"label": ((x + (year - 2014)) > 0).astype(int).tolist(), "x": x.tolist()}
    if keys:
        columns |= {"year": [year] * ROWS, "city": [city] * ROWS}
    return pa.table(columns)


def write_table(content, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(content, path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, content.schema) as out:
            out.write_table(content)
    elif path.suffix == ".csv":
        rows = [",".join(content.column_names), *(",".join(map(str, row.values())) for row in content.to_pylist())]
        path.write_text("\n".join(rows) + "\n")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in content.to_pylist()))


@pytest.fixture
def days(tmp_path):
    """Writes tables in directories year=.../city=... of a format, and one file with all their rows and columns."""

    def days(ending, root="days"):
        whole = []
        for city in CITIES:  # not in the order of the names
            for year in YEARS:
                folder = tmp_path / root / f"year={year}" / f"city={city.replace(' ', '%20')}"
                write_table(table(year, city), folder / f"part-0.{ending}")
                (folder / "_SUCCESS").touch()
                (folder / f".part-0.{ending}.crc").write_bytes(b"crc")
                (folder / "part-0.crc").write_bytes(b"crc")
        for year in YEARS:
            for city in sorted(CITIES, key=lambda city: city.replace(" ", "%20")):
                whole.append(table(year, city, keys=True))
        write_table(pa.concat_tables(whole), tmp_path / f"whole.{ending}")
        return str(tmp_path / root), str(tmp_path / f"whole.{ending}")

    return days


def model_of(data):
    return train(load_settings(overrides={"data.train": data, "output.model": None}, environ={})).model


def values_of(data, model):
    return np.concatenate([batch.copy().values for batch in open_stream(data, model=model)]).tobytes()


@pytest.mark.parametrize("ending", FORMATS)
def test_keys_of_directories_are_columns(days, ending):
    parted, whole = days(ending)
    one, other = model_of(parted), model_of(whole)
    assert [column["name"] for column in one.recipe["columns"]] == ["x", "year", "city"]
    assert one.recipe == {**other.recipe, "columns": one.recipe["columns"]}
    assert sorted(map(str, one.recipe["columns"])) == sorted(map(str, other.recipe["columns"]))
    assert one.weights.tobytes() == other.weights.tobytes() and one.bias == other.bias
    for given in (parted, whole, f"{parted}/year=*", f"{parted}/year=*/*/*"):
        assert values_of(given, one) == values_of(whole, other)
    part = f"{parted}/year=2014"
    rows = sum(batch.rows for batch in open_stream(part, model=one))
    assert rows == 2 * ROWS and all(batch.rows for batch in open_stream(f"{part}/city=Köln/part-0.{ending}", model=one))


def test_they_are_typed_as_arrow_types_them(days):
    parted, _ = days("parquet")
    for path in Path(parted).rglob("*.crc"):
        path.unlink()
    found = pyarrow.dataset.dataset(parted, partitioning="hive").to_table(columns=["year", "city"])
    assert partition_columns(find_parts([parted])).keys() == {"year", "city"}
    assert {type(value) for value in partition_columns(find_parts([parted]))["year"]} == {int}
    assert pa.types.is_integer(found["year"].type) and set(found["city"].to_pylist()) == set(CITIES)


def test_missing_keys_are_missing(tmp_path):
    for name in ("1", "__HIVE_DEFAULT_PARTITION__", "3"):
        write_table(table(2013, "x"), tmp_path / "d" / f"k={name}" / "a.csv")
    assert partition_columns(find_parts([str(tmp_path / "d")])) == {"k": [1, 3, None]}
    model = model_of(str(tmp_path / "d"))
    (batch,) = (batch.copy() for batch in open_stream(f"{tmp_path}/d/k=__*", model=model))
    assert np.diff(batch.indptr).max() == 2  # a number, and what says that the key is missing
    assert keys_of("a=1/b=2/c=3.csv") == (("a", "1"), ("b", "2"))


def test_a_directory_that_is_named_is_no_column(days, tmp_path):
    parted, _ = days("csv", root="run=7")
    names = [column["name"] for column in model_of(parted).recipe["columns"]]
    assert names == ["x", "year", "city"]
    assert [c["name"] for c in model_of(f"{parted}/year=2013/city=Köln").recipe["columns"]] == ["x"]
    files = [f"{parted}/year={year}/city=Köln/part-0.csv" for year in YEARS]
    assert [c["name"] for c in model_of(files).recipe["columns"]] == ["x", "year"]


@pytest.mark.parametrize("ending", FORMATS)
def test_files_that_have_the_column_themselves_are_believed(tmp_path, ending):
    for year in YEARS:
        write_table(table(year, "x", keys=True), tmp_path / "d" / f"year={year}" / f"a.{ending}")
    assert [c["name"] for c in model_of(str(tmp_path / "d")).recipe["columns"]][:2] == ["x", "year"]


def test_inspect_convert_and_keep_know_them(run, days, tmp_path):
    parted, whole = days("parquet")
    code, out, err = run("inspect", parted)
    assert code == 0 and "year    whole" in out and "city    text" in out, err
    assert run("convert", parted, "all.parquet")[0] == 0
    assert pq.read_table(tmp_path / "all.parquet").equals(pq.read_table(whole))
    days("csv", root="texts")
    assert run("convert", "texts", "all.jsonl")[0] == 0
    assert json.loads((tmp_path / "all.jsonl").read_text().splitlines()[0])["year"] == 2013
    assert run("train", parted, "-o", "m", "--quiet")[0] == 0
    for data in (parted, "texts"):
        lines = run("predict", "m", data, "--keep", "year,city")[1].splitlines()
        assert lines[0] == "year,city,prediction" and lines[1].startswith("2013,Köln,")
        assert lines[-1].startswith("2015,New York,")


def test_buckets_are_read_alike(days, bucket, tmp_path):
    parted, whole = days("parquet")
    for path in (tmp_path / "days").rglob("*"):
        if path.is_file():
            bucket.pipe(f"/b/days/{path.relative_to(tmp_path / 'days')}", path.read_bytes())
    assert [part.keys for part in find_parts(["memory://b/days"])] == [part.keys for part in find_parts([parted])]
    for url in ("memory://b/days", "memory://b/days/year=*"):
        assert model_of(url).weights.tobytes() == model_of(whole).weights.tobytes()
    bucket.pipe("/d/t/_delta_log/0.json", b"{}")
    bucket.pipe("/d/t/a.parquet", b"PAR1")
    with pytest.raises(SourceError, match="memory://d/t: this is a Delta Lake table, in whose files rows may stand"):
        find_parts(["memory://d/t"])


@pytest.mark.parametrize(
    ("name", "kind"), [("_delta_log/000.json", "a Delta Lake table"), ("metadata/v1.metadata.json", "an Iceberg table")]
)
def test_tables_with_a_history_are_refused(tmp_path, name, kind):
    write_table(table(2013, "x"), tmp_path / "t" / "data" / "a.parquet")
    (tmp_path / "t" / name).parent.mkdir()
    (tmp_path / "t" / name).write_text("{}")
    for given in (tmp_path / "t", tmp_path):
        with pytest.raises(SourceError, match=f"{given}: this is {kind}, in whose files rows may stand that were del"):
            find_parts([str(given)])


def test_links_that_lead_back_end(tmp_path):
    write_table(table(2013, "x"), tmp_path / "d" / "e" / "a.csv")
    (tmp_path / "d" / "e" / "back").symlink_to(tmp_path / "d")
    assert len(find_parts([str(tmp_path / "d")])) == 1


def test_text_formats_without_columns_are_read_below_too(tmp_path, run):
    for day in range(3):
        (tmp_path / "d" / f"day={day}").mkdir(parents=True)
        (tmp_path / "d" / f"day={day}" / "a.svm").write_text("1 1:2\n0 1:3\n" * 20)
    code, out, err = run("train", "d", "-o", "m", "--json")
    assert code == 0 and json.loads(out.splitlines()[-1])["examples"] == 120, err
