"""Rows made of cells, by every kind of column and in every combination, against the slow twin."""

import json
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libsvm_twin import rows_of
from table_twin import bucket_of, tokens, twin
from tiers import examples

import streamsvm.features.assembly
from streamsvm.cells import Cells
from streamsvm.errors import ModelError
from streamsvm.features.assembly import Assembly, Rows
from streamsvm.features.recipe import CELLS, Column, Recipe
from streamsvm.features.tokens import tokenise
from streamsvm.hashing import seed_of
from streamsvm.io.arrow_cells import ArrowCells

TYPES = {
    "x": pa.float64(), "z": pa.float64(), "s": pa.string(), "u": pa.string(), "k": pa.int64(), "t": pa.string(),
    "tags": pa.list_(pa.string()), "v": pa.list_(pa.float64()), "i": pa.list_(pa.int64()), "iv": pa.list_(pa.float64()),
    "y": pa.float64(), "w": pa.float64(), "c": pa.string(),
}  # fmt: skip
COLUMNS = {
    "x": Column("x", "number"),
    "z": Column("z", "log1p"),
    "s": Column("s", "word"),
    "u": Column("u", "word"),
    "k": Column("k", "word", number=True),
    "t": Column("t", "text"),
    "tags": Column("tags", "words"),
    "v": Column("v", "vector", width=3),
    "i": Column("i", "sparse", values="iv"),
}


def recipe_of(names, bits=20, marked=(), **options) -> Recipe:
    """A recipe of some of the columns above, with indicators of what is missing for those that are marked."""
    columns = tuple(replace(COLUMNS[name], missing="indicator" if name in marked else None) for name in names)
    return Recipe(columns, **{"label": "y", "hash_bits": bits, **options})


def assembled(rows, recipe: Recipe, room: Rows | None = None, **options):
    """The rows of an assembly, the numbers of bad ones and what is said of them."""
    assembly = Assembly(recipe, **options)
    names = {want.name for want in assembly.wants}
    schema = pa.schema({name: kind for name, kind in TYPES.items() if name in names})
    missing = [name for name in names if name not in TYPES]
    record = pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)
    for name in missing:
        record = record.append_column(name, pa.array([row.get(name) for row in rows]))
    cells = Cells(assembly.wants)
    wrong = ArrowCells(assembly.wants).fill(record, cells)
    batch, faults = assembly.batch(cells, room or Rows(), wrong)
    return rows_of(batch), sorted(fault.row for fault in faults), [fault.message for fault in sorted(faults)]


def agrees(rows, recipe: Recipe, **options) -> None:
    good, bad = twin(rows, recipe, **options)
    found, faulty, _ = assembled(rows, recipe, **options)
    assert faulty == bad
    assert found == good


NUMBERS = st.sampled_from([None, 0.0, -0.0, 1.0, -2.5, 1e-45, 3e38, float("nan"), float("inf"), 1e39, 0.1])
WORDS = st.sampled_from([None, "", "a", "b", "c", "über", "a b"])
VALUES = st.fixed_dictionaries(
    {
        "y": st.sampled_from([0.0, 1.0, -1.0, 2.0**24, 2.0**25, None, float("nan")]),
        "w": st.sampled_from([1.0, 0.0, -0.0, 2.5, -1.0, None, float("inf")]),
        "x": NUMBERS,
        "z": NUMBERS,
        "s": WORDS,
        "u": WORDS,
        "k": st.sampled_from([None, 0, 7, -7, 2**60]),
        "t": st.sampled_from([None, "", "a b c d", "The THE the", "x" * 70, "a,b;c-d", " ", "é É"]),
        "tags": st.lists(WORDS, max_size=4) | st.none(),
        "v": st.none() | st.just([]) | st.lists(st.sampled_from([0.0, 1.0, -2.5, 3e38]), min_size=3, max_size=3)
        | st.lists(st.sampled_from([1.0, None, float("inf")]), max_size=4),
        "i": st.none() | st.lists(st.sampled_from([0, 5, 2**32 - 1, -1]), max_size=3),
        "iv": st.none() | st.lists(NUMBERS, max_size=3),
    }
)  # fmt: skip


@examples(250)
@given(
    st.lists(VALUES, max_size=6),
    st.lists(st.sampled_from(list(COLUMNS)), min_size=1, unique=True),
    st.integers(1, 31),
    st.integers(1, 3),
    st.booleans(),
    st.sets(st.sampled_from("xzv")),
    st.data(),
)
def test_everything_against_the_twin(rows, names, bits, ngrams, weighted, marked, data):
    groups = st.lists(st.sampled_from(names), min_size=2, max_size=3).map(tuple)
    crossed = tuple(data.draw(st.lists(groups, max_size=2)))
    weight = "w" if weighted else None
    agrees(rows, recipe_of(names, bits, marked, ngrams=ngrams, weight=weight, interactions=crossed))


@examples(60)
@given(
    st.lists(VALUES, max_size=6),
    st.lists(st.sampled_from("xzsuk"), min_size=1, unique=True),
    st.sets(st.sampled_from("xz")),
)
def test_the_short_way_and_the_long_one_agree(rows, names, marked):
    """A column of lists that are empty changes nothing but the way."""
    short, long = recipe_of(names, marked=marked), recipe_of([*names, "tags"], marked=marked)
    rows = [{**row, "tags": None} for row in rows]
    assert assembled(rows, short) == assembled(rows, long)


# Interactions.

ROW = {
    "y": 1.0,
    "s": "a",
    "u": "b",
    "k": 7,
    "x": 2.5,
    "z": -3.0,
    "t": "one two three",
    "tags": ["p", "q"],
    "v": [1.0, 0.0, 2.0],
}


@pytest.mark.parametrize(
    "group",
    [("s", "u"), ("u", "s"), ("s", "u", "k"), ("s", "s"), ("x", "x"), ("x", "z"), ("x", "s"), ("t", "s"), ("t", "t")]
    + [("tags", "tags"), ("tags", "s", "tags"), ("tags", "tags", "tags"), ("v", "v"), ("v", "s")]
    + [("v", "x", "v"), ("x",) * 3],
)  # fmt: skip
def test_interactions(group):
    recipe = recipe_of(dict.fromkeys(group), interactions=(group,), ngrams=2)
    missing = [{**ROW, name: None} for name in set(group)]
    agrees([ROW, *missing, ROW], recipe)
    alone = assembled([ROW], recipe_of(dict.fromkeys(group), ngrams=2))[0][0]
    assert len(assembled([ROW], recipe)[0][0][1]) > len(alone[1])


def test_the_order_of_an_interaction_matters():
    one, other = (recipe_of("su", interactions=(group,)) for group in (("s", "u"), ("u", "s")))
    assert assembled([ROW], one)[0] != assembled([ROW], other)[0]


def test_a_missing_value_has_no_interactions():
    recipe = recipe_of("su", interactions=(("s", "u"),))
    found, _, _ = assembled([{"y": 1.0, "s": "a"}, {"y": 1.0, "s": "a", "u": "b"}], recipe)
    assert [len(row[1]) // 4 for row in found] == [1, 3]


def test_products_that_are_too_large():
    recipe = recipe_of("xz", interactions=(("x", "x"),))
    rows = [{"y": 1.0, "x": 1e30, "z": 1.0}, {"y": 0.0, "x": 1e15, "z": 1.0}, {"y": 1.0, "x": 1e20, "z": 1.0}]
    found, bad, messages = assembled(rows, recipe)
    assert (len(found), bad) == (1, [0, 2])
    assert messages == ["a sum or product of features does not fit in single precision (largest is 3.4e38)"] * 2


def test_rows_with_too_many_features(monkeypatch):
    """They are bad, and others are as they should be."""
    monkeypatch.setattr(streamsvm.features.assembly, "LONGEST_ROW", 20)
    rows = [{"y": 1.0, "tags": [f"t{k}" for k in range(n)]} for n in (2, 6, 3, 7, 1)]
    recipe = recipe_of(["tags"], interactions=(("tags", "tags"),))
    found, bad, messages = assembled(rows, recipe)
    assert bad == [1, 3] and found == twin([rows[0], rows[2], rows[4]], recipe)[0]
    assert messages[0] == "the row has more than 20 features with its interactions"


# Twins, long rows, many columns.


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_few_bits(bits):
    rng = random.Random(bits)
    rows = [
        {"y": 1.0, "s": f"a{rng.random()}", "u": "b", "k": 3, "x": 1.0, "tags": [f"{rng.random()}" for _ in range(9)]}
        for _ in range(50)
    ]
    agrees(rows, recipe_of(["x", "s", "u", "k"], bits))
    agrees(rows, recipe_of(["x", "s", "u", "k", "tags"], bits, interactions=(("tags", "s"),)))


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 66, 127, 128, 129, 1000])
@pytest.mark.parametrize("bits", [5, 31])
def test_long_rows(length, bits):
    rng = random.Random(length)
    rows = [{"y": 1.0, "tags": [f"{rng.randrange(10**6)}" for _ in range(length)], "x": 1.0} for _ in range(3)]
    agrees(rows, recipe_of(["x", "tags"], bits))
    texts = [{"y": 1.0, "t": " ".join(row["tags"])} for row in rows]
    agrees(texts, recipe_of(["t"], bits, ngrams=3))


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_many_columns(count):
    words = tuple(Column(f"w{k}", "word") for k in range(count))
    numbers = tuple(Column(f"n{k}", "number") for k in range(count))
    rng = random.Random(count)
    rows = [
        {
            "y": 1.0,
            **{f"w{k}": rng.choice([None, "a", "b"]) for k in range(count)},
            **{f"n{k}": rng.choice([None, 0.0, 1.5]) for k in range(count)},
        }
        for _ in range(4)
    ]
    rows.append({"y": 1.0, **{f"w{k}": "a" for k in range(count)}, **{f"n{k}": 1.0 for k in range(count)}})
    for bits in (4, 28):
        agrees(rows, Recipe(words + numbers, label="y", hash_bits=bits))
    agrees(rows, Recipe(numbers, label="y"))
    agrees(rows[-1:] * 300, Recipe(numbers, label="y"))


# Columns by themselves.


def test_buckets_at_their_edges():
    edges = (-1.5, 0.0, 0.1, 18.0, 1e30)
    recipe = Recipe((Column("x", "bucket", edges=edges),), label="y", hash_bits=20)
    near = [np.nextafter(np.float32(e), np.float32(d)) for e in edges for d in (-np.inf, np.inf)]
    values = [None, float("nan"), -1e38, 3e38, -0.0, *edges, *map(float, near)]
    agrees([{"y": 1.0, "x": value} for value in values], recipe)
    assert [bucket_of(np.float32(edge), edges) for edge in edges] == [1, 2, 3, 4, 5]
    with_text = Recipe((*recipe.columns, COLUMNS["t"]), label="y", hash_bits=20, interactions=(("x", "t"),))
    agrees([{"y": 1.0, "x": value, "t": "a b"} for value in values], with_text)


def test_log1p():
    values = [0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30, 3.4e38, -3.4e38, None, float("nan"), float("inf"), 1e300, 7.0]
    agrees([{"y": 1.0, "z": value} for value in values], recipe_of("z"))
    (row,), _, _ = assembled([{"y": 1.0, "z": -7.0}], recipe_of("z"))
    assert np.frombuffer(row[2], "f4").tolist() == [np.float32(-np.log(8))]


@given(st.lists(st.text(st.sampled_from("aB_7 .é\n"), max_size=20), max_size=5), st.integers(1, 3))
def test_tokens(texts, ngrams):
    data = np.frombuffer("".join(texts).encode() + b"tail", np.uint8)
    lengths = np.array([len(text.encode()) for text in texts], np.int32)
    starts = (np.cumsum(lengths) - lengths).astype(np.int32)
    offsets, words, values = tokenise(data, starts, lengths, 5, ngrams)
    for k, text in enumerate(texts):
        part = slice(offsets[k], offsets[k + 1])
        assert list(zip(words[part].tolist(), values[part], strict=True)) == tokens(text, 5, ngrams)


def test_tokens_by_hand():
    assert [w for w, _ in tokens("Über-GROSS, x_1", 9, 1)] == [w for w, _ in tokens("Über gross x_1", 9, 1)]
    assert len(tokens("a b c d", 9, 1)) == 4 and len(tokens("a b c d", 9, 2)) == 7 and len(tokens("a b c d", 9, 3)) == 9
    assert tokens("a b c d", 9, 1)[0][1] == 0.5


def test_vectors_of_another_length():
    rows = [
        {"y": 1.0, "v": value, "x": 1.0} for value in ([1.0, 2.0], [1.0] * 4, [1.0, None, 2.0], None, [], [3.0] * 3)
    ]
    found, bad, messages = assembled(rows, recipe_of("vx"))
    assert bad == [0, 1, 2] and len(found) == 3
    assert messages == ["column v: the list has not 3 numbers"] * 2 + ["column v: an item of the list is missing"]


# Labels and weights.


def test_labels_that_are_texts():
    recipe = recipe_of("x", label="c", label_classes=("no", "yes"))
    rows = [{"c": c, "x": 1.0} for c in ("yes", "no", None, "", "maybe", "yes")]
    agrees(rows, recipe)
    agrees(rows, recipe, labelled=False)
    _, bad, messages = assembled(rows, recipe)
    assert bad == [2, 3, 4]
    assert messages[0].startswith("column c: the label is missing, or is not one of the classes (no, yes), which the")


def test_labels_and_weights():
    values = [None, float("nan"), 0.0, -0.0, 1.0, -1.0, 2.0**24, -(2.0**24), 2.0**24 + 2, float("inf"), 0.1]
    agrees([{"y": value, "x": 1.0} for value in values], recipe_of("x"))
    agrees([{"y": 1.0, "w": value, "x": 1.0} for value in values], recipe_of("x", weight="w"))
    found, _, _ = assembled([{"y": None, "x": 1.0}], recipe_of("x"), labelled=False)
    assert np.isnan(np.frombuffer(found[0][0], "f4")[0])
    found, _, _ = assembled([{"x": 1.0}], recipe_of("x", label=None))
    assert np.isnan(np.frombuffer(found[0][0], "f4")[0])


def test_one_fault_a_row_in_a_fixed_order():
    """What is wrong with the text of a value comes before the label, that before the weight, that before features."""
    rows = [{"y": None, "w": -1.0, "x": float("inf"), "v": [1.0]}, {"y": 1.0, "w": -1.0, "x": float("inf"), "v": [1.0]}]
    rows += [{"y": 1.0, "w": 1.0, "x": float("inf"), "v": [1.0]}, {"y": 1.0, "w": 1.0, "x": 1.0, "v": [1.0]}]
    _, bad, messages = assembled(rows, recipe_of("xv", weight="w"))
    assert bad == [0, 1, 2, 3]
    assert [message.split(":")[0] for message in messages] == ["column y", "column w", "column x", "column v"]
    assembly = Assembly(recipe_of("x", label=None))
    cells = Cells(assembly.wants)
    ArrowCells(assembly.wants).fill(pa.record_batch([pa.array([1.0, float("inf")])], names=["x"]), cells)
    _, faults = assembly.batch(cells, Rows(), [(1, "first"), (1, "second"), (0, "third")])
    assert sorted(faults) == [(0, "third"), (1, "first")]


def test_room_is_used_again():
    room = Rows()
    rng = random.Random(0)
    for size in (3, 50, 1, 0, 200, 7):
        rows = [{**ROW, "s": rng.choice("abc"), "x": rng.choice([None, 1.0])} for _ in range(size)]
        for recipe in (recipe_of("xs"), recipe_of(["t", "v", "tags", "s"])):
            assert assembled(rows, recipe, room)[0] == twin(rows, recipe)[0]


# Recipes.

FULL = Recipe(
    (Column("a", "bucket", edges=(1.0, 2.5)), Column("v", "vector", width=3), Column("i", "sparse", values="iv")),
    label="y", label_classes=("no", "yes"), weight="w", hash_bits=9, interactions=(("a", "v"), ("a", "v", "i")),
    ngrams=2,
)  # fmt: skip


@pytest.mark.parametrize(
    "recipe",
    [
        FULL,
        recipe_of(list(COLUMNS)),
        recipe_of("xzv", marked="xv"),
        Recipe((Column("i", "sparse"),)),
        recipe_of("x", None),
    ],
)
def test_a_recipe_in_json(recipe):
    assert Recipe.from_json(recipe.as_json()) == recipe
    stored = json.loads(json.dumps(recipe.as_json()))
    assert Recipe.from_json(stored) == recipe and Recipe.from_json(stored).wants() == recipe.wants()


@pytest.mark.parametrize(
    "change",
    [{"hash": "md5"}, {"columns": []}, {"columns": None}, {"columns": [{"name": "a"}]}, {"hash_bits": None}]
    + [{"columns": [{"name": "a", "kind": "zip"}]}, {"columns": [{"name": 1, "kind": "word"}]}, {"hash_bits": 32}]
    + [{"columns": [{"name": "a", "kind": "bucket", "edges": [2, 1]}]}, {"more": 1}]
    + [{"columns": [{"name": "a", "kind": "word", "x": 1}]}]
    + [{"columns": [{"name": "a", "kind": "number", "missing": "?"}]}]
    + [{"columns": [{"name": "a", "kind": "word", "missing": "indicator"}]}]
    + [{"columns": [{"name": "a", "kind": "vector", "width": 0}]}, {"interactions": [["a", "nobody"]]}, {"ngrams": 4}]
    + [{"interactions": [["a"]]}, {"interactions": 7}, {"hash_bits": "9"}]
    + [{"columns": [{"name": "a", "kind": "word"}] * 2}],
)  # fmt: skip
def test_recipes_that_are_none(change):
    stored = {**json.loads(json.dumps(FULL.as_json())), **change}
    with pytest.raises(ModelError, match="the model's features cannot be understood by this version"):
        Recipe.from_json(stored)


def test_recipes_that_lack_something():
    for key in ("columns", "hash", "label_classes", "interactions"):
        stored = FULL.as_json()
        del stored[key]
        with pytest.raises(ModelError):
            Recipe.from_json(stored)
    with pytest.raises(ModelError):
        Recipe.from_json(None)  # type: ignore[arg-type]


def test_what_a_recipe_says_of_itself():
    assert FULL.dense == 3 and FULL.width == 3 + 2**9 and FULL.firsts() == [-1, 0, -1] and FULL.hashed
    assert FULL.dense_names() == ["v[0]", "v[1]", "v[2]"] and not FULL.as_written
    assert [want.name for want in FULL.wants()] == ["a", "v", "i", "iv"] and FULL.wants()[0].seed == seed_of("a")
    sparse = Recipe((Column("i", "sparse"),))
    assert sparse.as_written and not sparse.hashed and sparse.width == 0
    assert recipe_of("xz", None).width == 2 and recipe_of("xz", None).dense_names() == ["x", "log1p(z)"]
    assert set(CELLS) == {"number", "log1p", "bucket", "vector", "word", "words", "text", "date", "sparse"}
