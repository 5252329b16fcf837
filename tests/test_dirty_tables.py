"""Tables as people have them: what is wrong with them is told in one line with the remedy, and nothing is misread."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 300


@pytest.fixture
def told(run):
    """Runs a command: exit code, and all that it says, without the settings and how it goes."""

    def told(*arguments):
        code, out, err = run(*arguments)
        lines = [line for line in err.splitlines() if not line.startswith(("# ", "compiling "))]
        assert "Traceback" not in err + out
        return code, "\n".join([*lines, out])

    return told


def refused(told, *arguments):
    """The exit code and the one line of a command that is refused."""
    code, text = told(*arguments)
    lines = [line for line in text.splitlines() if line.startswith("streamsvm: ")]
    assert code and len(lines) == 1, text
    return code, lines[0].removeprefix("streamsvm: ")


# Headers.


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("a,a,cat,label", "x.csv:1: two columns are called a; give them different names; if this is a row, and no"),
        ("a,b,label,label", "x.csv:1: two columns are called label; give them different names"),
        (",,b,label", "x.csv:1: two columns have no name; give them different names"),
    ],
)
def test_a_name_that_is_there_twice_is_refused_and_no_row(told, write, header, message):
    write([header, *(f"{k}.5,{k % 9},{k % 3}.25,{k % 2}" for k in range(ROWS))], "x.csv")
    for command in (["train", "x.csv"], ["inspect", "x.csv"], ["convert", "x.csv", "y.parquet"]):
        code, line = refused(told, *command)
        assert code == 4 and line.startswith(message)


def test_lines_that_end_in_a_comma_have_a_header_all_the_same(told, write):
    write(["label,a,", *(f"{k % 2},{k}.5," for k in range(ROWS))], "x.csv")
    code, text = told("train", "x.csv", "-o", "m")
    assert code == 0 and "features: 1 numeric (a); label label" in text and "300 " in text


# Cells that are no numbers.

ODD = ["inf", "1_000", "0x1F", "1,000.5", "$5", "12a", "7\x00", "1e", "--1", "12 3"]


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_cell_does_not_make_categories_of_numbers(told, write, odd):
    cell = f'"{odd}"' if "," in odd else odd
    write(["label,a,b", *(f"{k % 2},{cell if k == 150 else f'{k}.5'},{k % 7 / 4}" for k in range(ROWS))], "x.csv")
    code, text = told("train", "x.csv", "-o", "m")
    assert code == 4 and "warning: column a: 1 of the first 300 values are no numbers" in text
    assert "streamsvm: x.csv:152: column a: " in text and "is not a number" in text
    code, text = told("train", "x.csv", "-o", "m", "--on-bad-row", "skip")
    assert code == 0 and "features: 2 numeric (a, b); label label" in text and "299 examples" in text
    code, text = told("train", "x.csv", "-o", "m", "--categorical", "a")
    assert code == 0 and "1 categorical (a)" in text
    assert "column a: 1 of the first 300" in told("inspect", "x.csv")[1]


def test_odd_cells_of_json_lines_and_of_columns_of_texts_are_those_of_csv(told, write, tmp_path):
    cells = [f"{k}.5" if k != 150 else "12a" for k in range(ROWS)]
    lines = [f'{{"label": {k % 2}, "a": {cell}}}' for k, cell in enumerate(cells)]
    write([line.replace("12a", '"12a"') for line in lines], "x.jsonl")
    pq.write_table(pa.table({"label": [k % 2 for k in range(ROWS)], "a": cells}), tmp_path / "x.parquet")
    places = {"x.jsonl": "x.jsonl:151: field 'a'", "x.parquet": "x.parquet: row group 0, row 151: column a"}
    for name, place in places.items():
        code, text = told("train", name, "-o", "m")
        assert code == 4 and "warning: column a: 1 of the first 300" in text
        assert f"{place}: '12a' is not a number" in text


# Ids and labels.


def test_ids_are_no_features_and_inspect_says_so(told, write):
    write(["id,user_id,name,x,label", *(f"{k},u{k * 7},n{k},{k % 9}.5,{k % 2}" for k in range(ROWS))], "x.csv")
    for command in (["train", "x.csv", "-o", "m"], ["inspect", "x.csv"]):
        code, text = told(*command)
        assert code == 0
        assert "id: whole numbers that grow by 1 from row to row, ignored; --numeric id keeps it" in text
        assert "user_id: all values differ, ignored; --numeric user_id keeps it" in text
        assert "all values differ in name; what is no feature: --ignore name" in text
    code, text = told("train", "x.csv", "-o", "m", "--numeric", "id", "--ignore", "name,user_id")
    assert "features: 2 numeric (id, x); label label" in text


def test_a_label_that_is_a_number_to_be_predicted_is_warned_of(told, write):
    write(["age,x", *(f"{18 + k % 72},{k % 9}.5" for k in range(ROWS))], "x.csv")
    code, text = told("train", "x.csv", "--label", "age", "-o", "m")
    assert code == 0 and text.count("warning: label age has 72 different numbers in the first rows") == 1
    assert "regression" in text
    assert "label age has 72 different numbers" in told("inspect", "x.csv", "--label", "age")[1]
