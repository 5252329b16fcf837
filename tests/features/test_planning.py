"""From first rows and wishes to a recipe: what is decided, what is refused, and in which words."""

import datetime
import decimal

import pytest

from streamsvm.cells import MISSING_WORDS
from streamsvm.errors import ConfigError
from streamsvm.features.first_values import MOST_CLASSES, Seen, look_at, look_at_texts, number_of_text
from streamsvm.features.planning import FEW, Wishes, plan
from streamsvm.features.recipe import Column

LABEL = Seen("whole", 9, 2)
ABSENT = set(MISSING_WORDS)


def planned(columns: dict[str, Seen], first: str | None = None, **wishes):
    """The recipe, without indicators unless wished, and what was said; the label is `y` unless the wishes name one."""
    notes: list[str] = []
    wishes = {"missing": "zero", **wishes}
    seen = {"y": LABEL, **columns} if "label" not in wishes and first is None else columns
    return plan(seen, Wishes(**wishes), notes.append, first), notes


def columns(seen: dict[str, Seen], **wishes) -> list[Column]:
    return list(planned(seen, **wishes)[0].columns)


# What values are.


@pytest.mark.parametrize(
    "values, kind",
    [([], "nothing"), ([None, "", float("nan")], "nothing"), ([1, None, 2], "whole"), ([1, 2.5], "number")]
    + [([True, False], "bool"), ([True, 2], "whole"), ([1, "a"], "text"), (["a", "b"], "text"), ([b"a"], "text")]
    + [([decimal.Decimal("1.5")], "number"), ([datetime.date(2024, 1, 2)], "time"), (["2024-01-02"], "time")]
    + [(["2024-01-02T03:04:05.6Z", "2024-01-02 03:04"], "time"), (["2024-01-02", "x"], "text"), ([{"a": 1}], "other")]
    + [([[1, 2], [3]], "wholes"), ([[1, 2.5]], "numbers"), ([["a"], None], "texts"), ([[], []], "nothing")]
    + [([[1], 2], "other"), ([[[1]]], "other"), ([["a", 1]], "texts"), ([[True]], "wholes")]
    + [([datetime.timedelta(1)], "other")],
)  # fmt: skip
def test_kinds(values, kind):
    assert look_at(values).kind == kind


def test_what_is_counted():
    assert look_at([1, 1, 2, None]) == Seen("whole", 3, 2, numbers=(1.0, 2.0))
    assert look_at(["b", "a", "b", ""]) == Seen("text", 3, 2, classes=("a", "b"), longest=1)
    assert look_at([[1, 2], None, [3, 4]]).width == 2 and look_at([[1], [2, 3]]).width == 0
    assert look_at([str(k) for k in range(MOST_CLASSES + 1)]).classes == ()


def test_classes_are_spelled_as_categories_are():
    assert look_at([b"yes", b"no"]).classes == ("no", "yes")
    assert look_at(["a", 7.0, True, 0.5]).classes == ("0.5", "7", "a", "true")


@pytest.mark.parametrize(
    "texts, kind",
    [(["1", "2"], "whole"), (["1", "NA", ""], "whole"), ([" 1.5", "?"], "number"), (["1e-3", "-"], "number")]
    + [(["NA", "None"], "text"), (["DE", "NA"], "text"), (["true", "FALSE", ""], "bool"), (["2024-01-02"], "time")]
    + [(["true", "no"], "text"), (["7a"], "text"), ([""], "nothing")]
    + [(["9" * 5000], "number"), (["1" * 5000 + "x"], "text"), (["0x10"], "text"), (["inf"], "text")],
)  # fmt: skip
def test_kinds_of_texts(texts, kind):
    assert look_at_texts(texts, ABSENT).kind == kind


def test_texts_are_kept_as_written():
    assert look_at_texts(["01", "1", "a"]).classes == ("01", "1", "a")
    assert number_of_text(" 7 ") == 7 and number_of_text(" a ") == " a " and number_of_text("  ") is None


# What becomes of columns.


@pytest.mark.parametrize(
    "seen, expected",
    [
        (Seen("number", 9, 9), Column("a", "number")),
        (Seen("bool", 9, 2), Column("a", "number")),
        (Seen("whole", 99, 5), Column("a", "number")),  # too few rows to tell
        (Seen("whole", 100, 2), Column("a", "number")),
        (Seen("whole", 100, 3), Column("a", "word", number=True)),
        (Seen("whole", 100, FEW), Column("a", "word", number=True)),
        (Seen("whole", 100, FEW + 1), Column("a", "number")),
        (Seen("text", 9, 3), Column("a", "word")),
        (Seen("nothing"), Column("a", "word")),
        (Seen("texts", 9), Column("a", "words")),
        (Seen("wholes", 9, 0, 4), Column("a", "vector", width=4)),
        (Seen("numbers", 9, 0, 4), Column("a", "vector", width=4)),
        (Seen("wholes", 9), Column("a", "words", number=True)),
    ],
)
def test_columns_that_nobody_mentions(seen, expected):
    assert columns({"a": seen}) == [expected]


def test_what_is_missing_has_an_index_for_each_column_of_numbers():
    seen = {
        "a": Seen("number", 9, 9), "k": Seen("text", 9, 3), "v": Seen("numbers", 9, 0, 2), "b": Seen("whole", 9, 9),
        "rare": Seen("number", 9, 9, sparse=True), "age": Seen("number", 9, 9),
    }  # fmt: skip
    recipe, _ = planned(seen, missing="indicator", log1p=("b",), bucketize={"age": (1.0,)})
    assert [c.name for c in recipe.columns if c.missing == "indicator"] == ["a", "v", "b"]
    assert recipe.dense_names() == ["a", "v[0]", "v[1]", "log1p(b)", "rare", *(f"{c} is missing" for c in "avb")]
    assert recipe.measured == 5 and recipe.dense == 8 and recipe.indicators() == [5, -1, 6, 7, -1, -1]
    numbers = recipe.numbers()
    assert numbers.indices.tolist() == [0, 1, 2, 3, 4] and numbers.indicators.tolist() == [5, 6, 6, 7, -1]
    assert Wishes().missing == "indicator"
    plain, _ = planned(seen, log1p=("b",), bucketize={"age": (1.0,)})
    assert plain.dense == 5 and not any("missing" in column for column in plain.as_json()["columns"])


def test_columns_that_are_left_out():
    recipe, notes = planned({"a": Seen("other", 9), "b": Seen("number", 9, 9)})
    assert [c.name for c in recipe.columns] == ["b"] and notes[0].startswith(
        "warning: column a is left out: it holds neither"
    )
    recipe, notes = planned({"": Seen("whole", 9, 9), "b": Seen("number", 9, 9)})
    assert [c.name for c in recipe.columns] == ["b"] and "a column without a name is left out" in notes[0]


def test_a_column_that_is_different_in_every_row():
    differ = {"user": Seen("text", 100, 100), "count": Seen("whole", 100, 100), "b": Seen("text", 100, 99)}
    notes = planned({**differ, "share": Seen("number", 100, 100), "few": Seen("text", 50, 50)})[1]
    assert notes[0] == "warning: all values differ in user, count; what is no feature: --ignore user,count"
    assert len(notes) == 2


@pytest.mark.parametrize(
    "name", ["id", "ID", "user_id", "userId", "row.id", "uuid", "request-guid", "index", "row_index", "Unnamed: 0"]
)
def test_ids_are_left_out_by_their_names(name):
    for seen in (Seen("whole", 20, 20), Seen("text", 20, 20, longest=36)):
        recipe, notes = planned({name: seen, "b": Seen("number", 9, 9)})
        assert [column.name for column in recipe.columns] == ["b"]
        assert notes[0] == f"{name}: all values differ, ignored; --numeric {name} keeps it (features.numeric)"
        assert len(columns({name: seen}, numeric=(name,))) == len(columns({name: seen}, numeric=("*",))) == 1
        assert len(columns({name: seen, "b": seen}, interactions=((name, "b"),))) == 2
    for seen in (Seen("whole", 20, 19), Seen("whole", 9, 9), Seen("text", 20, 20, longest=50), Seen("number", 20, 20)):
        assert name in [column.name for column in columns({name: seen})]


@pytest.mark.parametrize("name", ["bid", "paid", "identity", "indexed", "valid", "IDEA", "grid"])
def test_names_that_are_only_like_those_of_ids(name):
    assert len(columns({name: Seen("whole", 20, 20)})) == 1


def test_counters_are_left_out_whatever_their_name():
    counter = look_at(range(7, 7 + 3 * 100, 3))
    recipe, notes = planned({"n": counter, "b": Seen("number", 9, 9)})
    assert [column.name for column in recipe.columns] == ["b"]
    assert notes[0].startswith("n: whole numbers that grow by 3 from row to row, ignored; --numeric n keeps it")
    for values in (range(99), range(100, 0, -1), [0, 2, *range(3, 200)], [k / 2 for k in range(200)], [5] * 200):
        assert not look_at(values).step
    assert look_at_texts(map(str, range(100))).step == 1


def test_a_column_that_is_nearly_all_numbers_is_one_of_numbers():
    dirty = look_at_texts([*map(str, range(95)), "x", "12a", "$5", "inf"])
    assert (dirty.kind, dirty.filled, dirty.odd, dirty.oddities) == ("whole", 95, ("x", "12a", "$5"), 4)
    assert look_at_texts([*map(str, range(9)), "x"]).kind == "whole"
    assert look_at_texts([*map(str, range(8)), "x"]).kind == "text"
    assert look_at_texts([*map(str, range(90)), *"abcdefghij"]).kind == "text"
    assert look_at([*range(30), "x"]) == look_at([*map(str, range(30)), "x"])._replace(kind="whole")
    note = planned({"a": dirty})[1][0]
    assert note.startswith("warning: column a: 4 of the first 99 values are no numbers ('x', '12a', '$5', ...), and")


def test_texts_that_look_like_numbers():
    for values in (["$5", "$6.50"], ["1,000", "2,500.5"], ["5 %", "6 %"], ["1.234,5", "7,1"], ["1_000", "2_000"]):
        seen = look_at_texts(values)
        assert (seen.kind, seen.like_numbers) == ("text", values[0])
        assert planned({"a": seen})[1][0].startswith(f"warning: column a: values such as {values[0]!r} are no numbers")
    assert not look_at_texts(["5a", "$5"]).like_numbers and not look_at_texts(["-"]).like_numbers


def test_numbers_with_zeros_before_them_are_codes():
    assert look_at_texts(["01067", "80331", "04109"]).kind == "text"
    assert look_at_texts(["0", "1", "10"]).kind == "whole" and look_at_texts(["0.5", "00.5"]).kind == "number"


def test_whole_numbers_that_data_frames_keep_with_a_point():
    assert look_at([1.0, 2.0, None]).kind == look_at_texts(["1.0", "2.0", ""]).kind == "whole"
    assert look_at([1.0, 2.0]).kind == look_at_texts(["1.0", "2.0"]).kind == "number"


def test_dates_become_their_parts():
    days = look_at_texts(["2024-01-31", "2024-02-29", "NA", ""])
    assert (days.kind, days.filled, days.parts) == ("time", 2, ("weekday", "day", "month"))
    assert look_at([datetime.date(2024, 1, 31), datetime.date(2024, 2, 29)]) == days
    midnight = look_at_texts(["2024-01-31 00:00:00", "2024-02-29T00:00Z"])
    assert midnight == days
    hours = look_at_texts(["2024-01-31T08:00", "2024-02-29"])
    assert hours.parts == ("hour", "weekday", "day", "month")
    assert look_at_texts(["08:30", "09:15:20.5"]).parts == ("hour",)
    recipe, notes = planned({"t": hours, "x": Seen("number", 9, 9)})
    assert recipe.columns[0] == Column("t", "date", parts=("hour", "weekday", "day", "month"))
    assert notes[0] == "t: a date, of which hour, weekday, day, month are features (features.dates)"
    assert columns({"t": days}, dates={"t": ("time", "day")})[0].parts == ("day", "time")
    assert columns({"t": days}, dates={"*": ("time",)})[0].edges == (1706659200.0, 1709164800.0)
    assert columns({"t": days, "x": Seen("number")}, ignore=("t",)) == [Column("x", "number")]
    with pytest.raises(ConfigError, match="features.dates: column x holds no dates such as 2024-01-31"):
        planned({"t": days, "x": Seen("number", 9, 9)}, dates={"x": ("day",)})
    dirty = look_at_texts(["2024-01-31"] * 30 + ["31.1.2024"])
    assert (dirty.kind, dirty.odd) == ("time", ("31.1.2024",))
    assert "column t: 1 of the first 31 values are no dates ('31.1.2024')" in planned({"t": dirty})[1][1]


def test_lists_of_numbers_of_different_length_are_refused():
    with pytest.raises(ConfigError, match="column v has lists of numbers of different length: use --ignore v"):
        planned({"v": Seen("numbers", 9)})
    with pytest.raises(ConfigError, match="column v has lists of different length, and so cannot be numeric"):
        planned({"v": Seen("wholes", 9)}, numeric=("v",))


# Wishes.

MIXED = {
    "I1": Seen("whole", 200, 5),
    "I2": Seen("number", 200, 99),
    "C1": Seen("text", 200, 9),
    "v": Seen("wholes", 9, 0, 2),
}


def test_wishes():
    found = columns(
        MIXED, numeric=("I1",), log1p=("I2",), text=("C1",), categorical=("v",)
    )  # fmt: skip
    assert found == [
        Column("I1", "number"),
        Column("I2", "log1p"),
        Column("C1", "text"),
        Column("v", "words", number=True),
    ]
    assert columns(MIXED, numeric=("I*", "v"), ignore=("C?",)) == [
        Column("I1", "number"), Column("I2", "number"), Column("v", "vector", width=2)
    ]  # fmt: skip
    assert columns(MIXED, categorical=("*",))[1] == Column("I2", "word", number=True)


def test_a_name_counts_more_than_a_pattern():
    found = columns(MIXED, numeric=("I*",), categorical=("I1",), ignore=("v", "C1"))
    assert found == [Column("I1", "word", number=True), Column("I2", "number")]
    buckets = {"I*": (1.0,), "I2": (2.0, 3.0)}
    found = columns(MIXED, bucketize=buckets, ignore=("v", "C1"))
    assert found == [Column("I1", "bucket", edges=(1.0,)), Column("I2", "bucket", edges=(2.0, 3.0))]


def test_names_with_brackets():
    odd = {"x[0]": Seen("number", 9, 9), "x[1]": Seen("number", 9, 9)}
    assert columns(odd, bucketize={"x[0]": (1.0,)}, log1p=("x[1]",)) == [
        Column("x[0]", "bucket", edges=(1.0,)), Column("x[1]", "log1p")
    ]  # fmt: skip


@pytest.mark.parametrize(
    "wishes",
    [{"numeric": ("I1",), "categorical": ("I1",)}, {"numeric": ("I*",), "log1p": ("*1",)}]
    + [{"bucketize": {"I1": (1.0,)}, "ignore": ("I1",)}],
)
def test_conflicts(wishes):
    with pytest.raises(ConfigError, match=r"column I1 is named in features\.\w+ and in features\.\w+"):
        planned(MIXED, **wishes)


@pytest.mark.parametrize("kind", ["numeric", "categorical", "text", "ignore", "log1p"])
def test_unknown_names(kind):
    with pytest.raises(ConfigError, match=rf"features\.{kind}: there is no column prise \(did you mean price\?\)"):
        planned({"price": Seen("number", 9, 9)}, **{kind: ("prise",)})
    with pytest.raises(ConfigError, match=rf"features\.{kind}: there is no column Z\* \(there are y, price\)"):
        planned({"price": Seen("number", 9, 9)}, **{kind: ("Z*",)})


def test_unknown_names_elsewhere():
    price = {"price": Seen("number", 9, 9)}
    for wishes, setting in (({"weight": "w8"}, "data.weight"), ({"bucketize": {"q": (1.0,)}}, "features.bucketize")):
        with pytest.raises(ConfigError, match=f"{setting}: there is no column"):
            planned(price, **wishes)
    with pytest.raises(ConfigError, match=r"features.interactions: prise is no feature \(did you mean price\?\)"):
        planned(price, interactions=(("price", "prise"),))
    with pytest.raises(ConfigError, match="features.interactions: y is no feature"):
        planned(price, interactions=(("price", "y"),))
    with pytest.raises(ConfigError, match="data.label: there is no column lable"):
        planned({"label": LABEL}, label="lable")


def test_nothing_is_left():
    with pytest.raises(ConfigError, match="no column is left to learn from"):
        planned({"a": Seen("number", 9, 9)}, ignore=("*",))


# Label, weight, classes.


@pytest.mark.parametrize("name", ["label", "target", "y", "class", "click", "Clicked", "OUTCOME"])
def test_labels_are_found_by_name(name):
    found = plan({"a": Seen("number", 9, 9), name: LABEL}, Wishes(), lambda text: None)
    assert found.label == name and [c.name for c in found.columns] == ["a"]


def test_which_label():
    both = {"y": LABEL, "target": LABEL, "a": Seen("number", 9, 9)}
    assert plan(both, Wishes(), print).label == "target" and plan(both, Wishes(label="a"), print).label == "a"
    assert plan({"c1": LABEL, "c2": LABEL}, Wishes(), print, "c1").label == "c1"
    with pytest.raises(
        ConfigError, match=r"which column is the label\? Name it with --label \(data.label\) \(there are a, b\)"
    ):
        plan({"a": LABEL, "b": LABEL}, Wishes(), print)


def test_classes():
    texts = {"y": Seen("text", 9, 2, classes=("no", "yes")), "a": Seen("number", 9, 9)}
    assert plan(texts, Wishes(), print).label_classes == ("no", "yes")
    assert plan(texts, Wishes(classes=("yes", "no", 3)), print).label_classes == ("yes", "no", "3")
    spelled = {**texts, "y": Seen("text", 9, 2, classes=("0", "1.0"))}
    assert plan(spelled, Wishes(), print).label_classes is None
    assert plan({**texts, "y": LABEL}, Wishes(classes=(0, 1)), print).label_classes is None
    for seen, what in (
        (Seen("text", 9, 1, classes=("a",)), "one class"),
        (Seen("text", 5000, 5000), "too many different texts"),
    ):
        with pytest.raises(ConfigError, match=f"column y: the first rows have {what}; declare the classes"):
            plan({**texts, "y": seen}, Wishes(), print)
    with pytest.raises(ConfigError, match="column y cannot be the label"):
        plan({**texts, "y": Seen("numbers", 9, 0, 3)}, Wishes(), print)


def test_weights():
    assert planned({"w": Seen("number", 9, 9), "a": Seen("number", 9, 9)}, weight="w")[0].weight == "w"
    assert planned({"weight": Seen("number", 9, 9)})[0].weight is None


# Sparse columns, bits, and what is said.

SPARSE = {"indices": Seen("wholes", 9), "values": Seen("numbers", 9)}


def test_sparse_columns():
    recipe, notes = planned({**SPARSE, "weight": Seen("number", 9, 9)})
    assert recipe.as_written and recipe.columns == (Column("indices", "sparse", values="values"),)
    assert recipe.weight == "weight" and recipe.hash_bits is None and recipe.width == 0
    assert notes == ["features: indices and values as written, label y"]
    beside, _ = planned({**SPARSE, "s": Seen("text", 9, 3)})
    assert not beside.as_written and beside.hash_bits == 22 and [c.kind for c in beside.columns] == ["sparse", "word"]
    assert planned(SPARSE, hash_bits=8)[0].width == 256
    with pytest.raises(ConfigError, match="lists of numbers of different length"):
        planned({"values": Seen("numbers", 9)})


def test_bits_are_chosen_only_where_something_is_hashed():
    assert planned({"a": Seen("number", 9, 9)})[0].hash_bits is None
    assert planned({"a": Seen("text", 9, 3)})[0].hash_bits == 22
    assert planned({"a": Seen("text", 9, 3)}, hash_bits=5)[0].hash_bits == 5
    assert (
        planned({"a": Seen("number", 9, 9), "b": Seen("number", 9, 9)}, interactions=(("a", "b"),))[0].hash_bits == 22
    )


def test_what_is_said():
    seen = {f"n{k}": Seen("number", 9, 9) for k in range(6)} | {"s": Seen("text", 9, 3)}
    _, notes = planned(seen, interactions=(("s", "n0"),))
    assert notes == ["features: 6 numeric (n0, n1, ... n5), 1 categorical (s), 1 interactions; label y"]
