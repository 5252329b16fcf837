"""Labels as the user wrote them, and codes."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.batch import Batch
from streamsvm.classes import ClassMap, UndeclaredClassError, class_map_of, classes_from, refuse_texts, shown_label
from streamsvm.errors import ConfigError, DataError, ModelError

NAN = float("nan")


def labelled(*labels: float) -> Batch:
    count = len(labels)
    return Batch(
        np.zeros(count + 1, np.int64),
        np.empty(0, np.uint32),
        np.empty(0, np.float32),
        np.array(labels, np.float32),
        np.ones(count, np.float32),
    )


def codes(classes: ClassMap, *labels: float) -> list[float]:
    encoded = classes.encode(labelled(*labels))
    assert encoded.labels.dtype == np.float32
    return [float(code) for code in encoded.labels]


@pytest.mark.parametrize(
    ("labels", "expected", "names"),
    [
        ([-1, 1, 1, -1], [0, 1, 1, 0], [-1, 1]),
        ([0, 1, 1, 0], [0, 1, 1, 0], [0, 1]),
        ([1, 1], [1, 1], [-1, 1]),
        ([-1, -1], [0, 0], [-1, 1]),
        ([0, 0], [0, 0], [0, 1]),
        ([-0.0, 1], [0, 1], [0, 1]),
        ([], [], []),
    ],
)
def test_the_two_usual_pairs_are_understood(labels: list[float], expected: list[float], names: list[int]) -> None:
    classes = ClassMap()
    assert codes(classes, *labels) == expected
    assert classes.names == names and classes.open


def test_the_other_class_of_a_usual_pair_may_come_late() -> None:
    classes = ClassMap()
    assert codes(classes, 1, 1, 1) == [1, 1, 1]
    assert codes(classes, 1, 0) == [1, 0]
    assert classes.names == [0, 1]


@pytest.mark.parametrize("late", [-1.0, 2.0, 0.5, -7.0])
def test_a_late_class_is_an_error_that_names_label_row_and_remedy(late: float) -> None:
    classes = ClassMap()
    codes(classes, 0, 1)
    with pytest.raises(UndeclaredClassError) as caught:
        classes.encode(labelled(1, 0, late, 1))
    assert caught.value.row == 2 and caught.value.label == late and isinstance(caught.value, DataError)
    text = str(caught.value)
    assert f"label {shown_label(late)} is not one of the classes (0, 1)" in text
    assert "--classes" in text and "data.classes" in text and "--multiclass ova" in text


@pytest.mark.parametrize("order", [(-1, 0, 1), (0, -1, 1), (1, 0, -1), (1, -1, 0)])
def test_three_usual_labels_are_refused_at_the_row_that_is_one_too_many_however_the_rows_are_cut(
    order: tuple[int, ...],
) -> None:
    expected_row = max(order.index(0), order.index(-1))
    for cut in range(4):
        classes = ClassMap()
        seen = 0
        with pytest.raises(UndeclaredClassError) as caught:
            for piece in (order[:cut], order[cut:]):
                classes.encode(labelled(*piece))
                seen += len(piece)
        assert seen + caught.value.row == expected_row
        assert caught.value.label == order[expected_row]


def test_the_first_unknown_label_is_the_one_named() -> None:
    with pytest.raises(UndeclaredClassError, match=r"label 3 is not one of the classes \(-1, 1\)") as caught:
        ClassMap().encode(labelled(-1, 1, 3, 2, 0))
    assert caught.value.row == 2
    with pytest.raises(UndeclaredClassError, match=r"label 3 is not one of the classes \(-1, 1 or 0, 1\)"):
        ClassMap().encode(labelled(3))


def test_declared_classes_keep_their_order() -> None:
    assert codes(ClassMap([1, 2]), 1, 2, 2) == [0, 1, 1]
    assert codes(ClassMap([2, 1]), 1, 2, 2) == [1, 0, 0]
    assert ClassMap([2, 1]).names == [2, 1] and ClassMap([2, 1]).numbers.tolist() == [2, 1]
    assert codes(ClassMap([1, -1]), 1, -1) == [0, 1]  # even where the usual order is the other one


def test_a_label_beside_the_declared_ones_is_refused_and_the_remedy_is_not_another_pass() -> None:
    for label in (0.0, 1.5, 99.0, -99.0, float("inf")):
        with pytest.raises(UndeclaredClassError) as caught:
            ClassMap([1, 2]).encode(labelled(2, label))
        assert caught.value.row == 1 and "(1, 2)" in str(caught.value) and "data.classes" in str(caught.value)
        assert "--passes" not in str(caught.value)


@given(st.permutations([3, -1, 0.5, 700, 0]), st.lists(st.integers(0, 4), max_size=30))
def test_five_declared_classes_map_to_their_places(classes: list[Any], places: list[int]) -> None:
    assert codes(ClassMap(classes), *(classes[place] for place in places)) == places


@pytest.mark.parametrize("classes", [None, [1, 2], [2, 1, 7]])
def test_rows_without_a_label_stay_without_one(classes: list[Any] | None) -> None:
    first, second, third = codes(ClassMap(classes), NAN, 1, NAN)
    assert np.isnan(first) and np.isnan(third) and second in (0.0, 1.0)


def test_unlabelled_rows_alone_decide_nothing() -> None:
    classes = ClassMap()
    codes(classes, NAN, NAN)
    assert classes.names == [] and classes.numbers.tolist() == [-1, 1]


def test_encoding_leaves_the_batch_as_it_was() -> None:
    batch = labelled(-1, 1)
    encoded = ClassMap().encode(batch)
    assert batch.labels.tolist() == [-1, 1] and encoded.labels.tolist() == [0, 1]
    assert encoded.values is batch.values


@pytest.mark.parametrize("classes", [["spam", "ham"], [1, "ham"], ["", 1]])
def test_texts_have_their_places_as_labels_and_are_refused_where_labels_are_numbers(classes: list[Any]) -> None:
    assert codes(ClassMap(classes), 0, 1) == [0, 1] and ClassMap(classes).names == classes
    wrong = next(name for name in classes if isinstance(name, str))
    with pytest.raises(ConfigError, match=rf"^data\.classes: the labels of this data are numbers, not '{wrong}'$"):
        refuse_texts(classes)
    refuse_texts([1, "2.0"])


def test_numbers_written_as_text_are_numbers_and_stay_as_written() -> None:
    classes = ClassMap(["+1", "2.0"])
    assert codes(classes, 2, 1) == [1, 0] and classes.names == ["+1", "2.0"]


@pytest.mark.parametrize("classes", [[1, 1], [1, 1.0], [1, "1"], [16777216, 16777217]])
def test_two_classes_that_are_one_number_are_refused(classes: list[Any]) -> None:
    with pytest.raises(ConfigError, match="the same number"):
        ClassMap(classes)


@pytest.mark.parametrize(
    ("label", "text"), [(1.0, "1"), (-1.0, "-1"), (0.5, "0.5"), (0.1, "0.1"), (2.25, "2.25"), (-0.3, "-0.3"), (7, "7")]
)
def test_labels_are_shown_as_a_person_writes_them(label: float, text: str) -> None:
    assert shown_label(label) == text
    assert shown_label(float(np.float32(label))) == text  # also as they come out of a batch


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({-1.0, 1.0}, [-1, 1]),
        ({0.0, 1.0}, [0, 1]),
        ({1.0}, [-1, 1]),
        ({-1.0}, [-1, 1]),
        ({0.0}, [0, 1]),
        ({2.0, 1.0}, [1, 2]),
        ({-1.0, 0.0}, [-1, 0]),
        ({-1.0, 0.0, 1.0}, [-1, 0, 1]),
        ({0.5, 3.0}, [0.5, 3]),
        ({7.0}, [7]),
    ],
)
def test_classes_found_in_a_whole_data_set(labels: set[float], expected: list[Any]) -> None:
    found = classes_from(labels)
    assert found == expected and [type(name) for name in found] == [type(name) for name in expected]
    assert codes(ClassMap(found), *labels) == [expected.index(label) for label in labels]
    assert classes_from(sorted(labels)) == classes_from(dict.fromkeys(labels, 1.0)) == expected


def resumed(classes: ClassMap) -> ClassMap:
    state = classes.state()
    other = ClassMap()
    other.restore(json.loads(json.dumps(state)))
    assert other.state() == state == classes.state()
    return other


@given(st.lists(st.lists(st.sampled_from([-1.0, 0.0, 1.0, NAN, 2.0]), max_size=3), max_size=6))
def test_an_open_map_goes_on_as_if_it_had_not_stopped(pieces: list[list[float]]) -> None:
    results = []
    for stopping in (False, True):
        classes, found = ClassMap(), []
        for piece in pieces:
            try:
                found.append(repr(codes(classes, *piece)))
            except UndeclaredClassError as error:
                found.append(str(error))
            found.append(str(classes.names))
            if stopping:
                classes = resumed(classes)
        results.append(found)
    assert results[0] == results[1]


def test_what_a_map_has_seen_is_not_shared_with_its_state() -> None:
    classes = ClassMap()
    state = classes.state()
    codes(classes, 0)
    assert state == ClassMap().state() and classes.state() != state
    other = ClassMap()
    other.restore(state)
    codes(other, -1)
    assert state == ClassMap().state()


def test_declared_classes_have_nothing_to_save() -> None:
    classes = ClassMap([2, 1])
    codes(classes, 1, 2)
    assert classes.state() == {}
    classes.restore({})
    assert classes.names == [2, 1] and codes(classes, 1, 2) == [1, 0]
    with pytest.raises(ModelError, match="the other way round"):
        classes.restore(ClassMap().state())
    with pytest.raises(ModelError, match="the other way round"):
        ClassMap().restore(classes.state())


# Classes that are found as they come.


def test_labels_get_the_next_code_in_the_order_in_which_they_come() -> None:
    classes = ClassMap(growing=True)
    assert classes.many and not classes.open and classes.names == []
    assert codes(classes, 7, 3, 7, 2.5) == [0, 1, 0, 2]
    assert classes.names == [7, 3, 2.5] and [type(name) for name in classes.names] == [int, int, float]
    assert codes(classes, 2.5, NAN, -1)[::2] == [2, 3]
    assert classes.places().tolist() == [3, 2, 1, 0]
    assert codes(classes) == []


@given(st.lists(st.sampled_from([1.0, 2.0, 5.0, -3.0, 0.5]), max_size=30), st.lists(st.integers(0, 30), max_size=5))
def test_cuts_and_stops_give_the_same_codes(labels: list[float], points: list[int]) -> None:
    whole, classes = ClassMap(growing=True), ClassMap(growing=True)
    expected, found = codes(whole, *labels), []
    edges = [0, *sorted(min(point, len(labels)) for point in points), len(labels)]
    for a, b in zip(edges, edges[1:], strict=False):
        found += codes(classes, *labels[a:b])
        state = json.loads(json.dumps([classes.names, classes.state()]))
        classes = ClassMap.restored(*state)
    assert found == expected and classes.names == whole.names and classes.growing


def test_too_many_labels_are_no_classes() -> None:
    with pytest.raises(DataError, match="more than 1000 different labels"):
        ClassMap(growing=True).encode(labelled(*range(1001)))
    with pytest.raises(DataError, match="more than 20 different labels"):
        ClassMap(growing=True).encode(labelled(*(k + 0.5 for k in range(21))))
    assert len(codes(ClassMap(growing=True), *range(1000))) == 1000


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ((), "open"), ((1,), "open"), ((-1, 1), "open"), ((0, 1), "open"), ((1, 2), "guessed"), ((-1, 0), "guessed"),
        ((5,), "growing"), ((-1, 0, 1), "growing"), ((1, 2, 3), "growing"),
    ],
)  # fmt: skip
def test_what_the_first_rows_say(labels: tuple[float, ...], kind: str) -> None:
    found = class_map_of(labels, "auto")
    assert getattr(found, kind) and found.many == (kind == "growing")
    assert class_map_of(labels, "ova").growing and class_map_of(labels, "crammer_singer").growing
