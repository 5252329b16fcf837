"""LIBLINEAR's text: numbers come back as they were, and damage is told in one line before memory is taken."""

import io
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from streamsvm.errors import ModelError
from streamsvm.io import liblinear_text
from streamsvm.io.liblinear_text import TYPES, LiblinearModel, columns_of, is_liblinear, read_liblinear, write_liblinear

TWO = b"solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 3\nbias -1\nw\n0.5 \n-1e-3 \n0 \n"
THREE = b"solver_type MCSVM_CS\nnr_class 3\nlabel 5 -7 6\nnr_feature 1\nbias 0.5\nw\n1 2 3 \n4 -5 6e1 \n"


def text_of(model: LiblinearModel) -> bytes:
    out = io.BytesIO()
    write_liblinear(model, out.write)
    return out.getvalue()


def test_what_is_written_is_what_stands_in_the_file() -> None:
    model = read_liblinear(TWO, "m")
    assert (model.type, model.labels, model.columns) == ("L2R_LR", [1, -1], 1)
    assert model.weights.tolist() == [[0.5], [np.float32(-1e-3).item()], [0.0]] and model.bias.tolist() == [0.0]
    model = read_liblinear(THREE, "m")
    assert model.labels == [5, -7, 6] and model.weights.tolist() == [[1, 2, 3]]
    assert model.bias.tolist() == [2.0, -2.5, 30.0]  # the weights of the constant feature times its value
    assert read_liblinear(THREE.replace(b"\n", b"\r\n"), "m").bias.tolist() == [2.0, -2.5, 30.0]
    assert is_liblinear(TWO) and not is_liblinear(b"\x10\x00solver_type") and not is_liblinear(b"")


floats32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
floats64 = st.floats(min_value=-1e308, max_value=1e308, allow_nan=False)


@st.composite
def models(draw: st.DrawFn) -> LiblinearModel:
    kind = draw(st.sampled_from(sorted(TYPES)))
    labels = draw(st.lists(st.integers(-(2**24), 2**24), min_size=2, max_size=4, unique=True))
    columns, rows = columns_of(kind, len(labels)), draw(st.integers(0, 5))
    weights = draw(st.lists(floats32, min_size=rows * columns, max_size=rows * columns))
    bias = draw(st.lists(floats64, min_size=columns, max_size=columns))
    return LiblinearModel(kind, labels, np.array(weights, np.float32).reshape(rows, columns), np.array(bias))


@given(models(), st.integers(1, 40))
def test_every_number_comes_back_bit_for_bit_however_the_text_is_cut(model: LiblinearModel, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(liblinear_text, "PIECE", piece)
        found = read_liblinear(text_of(model), "m")
    assert (found.type, found.labels) == (model.type, model.labels)
    assert found.weights.shape == model.weights.shape and found.weights.tobytes() == model.weights.tobytes()
    assert (found.bias == model.bias).all()


@pytest.mark.parametrize("whole", [TWO, THREE], ids=["two", "three"])
def test_a_file_that_was_cut_off_is_refused_at_every_byte(whole: bytes) -> None:
    for end in range(len(whole)):
        with pytest.raises(ModelError, match=r"^heart\.model: ") as refused:
            read_liblinear(whole[:end], "heart.model")
        assert "\n" not in str(refused.value)


@examples(300)
@given(st.data())
def test_a_damaged_file_is_read_or_refused_in_one_line(data: st.DataObject) -> None:
    whole = bytearray(data.draw(st.sampled_from([TWO, THREE])))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_liblinear(bytes(whole), "m")
    except ModelError as error:
        assert "\n" not in str(error)
    else:
        assert np.isfinite(found.weights).all() and np.isfinite(found.bias).all()


def changed(old: bytes, new: bytes) -> bytes:
    assert old in TWO
    return TWO.replace(old, new)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (changed(b"L2R_LR", b"L2R_L2LOSS_SVR"), "regression .L2R_L2LOSS_SVR., which has no classes"),
        (changed(b"L2R_LR", b"L2R_L2LOSS_SVR_DUAL"), "regression"),
        (changed(b"L2R_LR", b"L2R_L1LOSS_SVR_DUAL"), "regression"),
        (changed(b"L2R_LR", b"ONECLASS_SVM"), "one-class"),
        (changed(b"L2R_LR", b"L3R"), "'L3R' is no solver type"),
        (changed(b"nr_class 2", b"nr_class 3"), "3 classes, and 2 labels"),
        (changed(b"label 1 -1\n", b""), "2 classes, and 0 labels"),
        (changed(b"label 1 -1", b"label 1 1"), "a label of its own"),
        (changed(b"label 1 -1", b"label 1 a"), "labels"),
        (changed(b"label 1 -1", b"label 1 20000000"), "beyond 16,777,216"),
        (b"solver_type L2R_LR\nnr_class 1\nlabel 1\nnr_feature 1\nbias -1\nw\n1 \n", "two classes"),
        (changed(b"nr_feature 3", b"nr_feature -3"), "nr_feature is missing or wrong"),
        (changed(b"nr_feature 3", b"nr_feature 4"), "truncated: it has 3 of 4 x 1 weights"),
        (changed(b"nr_feature 3", b"nr_feature 2"), "more than 2 x 1 weights"),
        (changed(b"bias -1", b"bias nan"), "its bias is no number"),
        (changed(b"bias -1", b"bias"), "bias is missing or wrong"),
        (changed(b"bias -1", b"bias -1\nbias -1"), "'bias' is not what its head may have here"),
        (changed(b"bias -1", b"colour 1"), "'colour' is not what"),
        (changed(b"0.5", b"half"), "'half' is not a weight"),
        (changed(b"0.5", b"1_0"), "'1_0' is not a weight"),
        (changed(b"0.5", b"inf"), "'inf' is not a weight"),
        (changed(b"0.5", b"1e39"), "beyond single precision"),
    ],
)
def test_what_is_wrong_is_named(content: bytes, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        read_liblinear(content, "m")


@pytest.mark.parametrize("features", [10**12, 10**17, 2**63])
def test_sizes_that_a_file_cannot_have_are_refused_before_memory_is_taken(features: int) -> None:
    content = changed(b"nr_feature 3", b"nr_feature %d" % features)
    tracemalloc.start()
    with pytest.raises(ModelError, match="truncated or damaged|nr_feature is missing or wrong"):
        read_liblinear(content, "m")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
