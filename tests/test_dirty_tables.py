"""Tables as people have them: what is wrong with them is told in one line with the remedy, and nothing is misread."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsvm import StreamSVC

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


def with_odd_cell(odd):
    cell = f'"{odd}"' if "," in odd else odd
    return ["label,a,b", *(f"{k % 2},{cell if k == 150 else f'{k}.5'},{k % 7 / 4}" for k in range(ROWS))]


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_cell_does_not_make_categories_of_numbers(told, write, odd):
    write(with_odd_cell(odd), "x.csv")
    code, text = told("train", "x.csv", "-o", "m")
    assert code == 4 and "warning: column a: 1 of the first 300 values are no numbers" in text
    assert "streamsvm: x.csv:152: column a: " in text and "is not a number" in text


def test_odd_cells_can_be_left_out_or_be_categories(told, write):
    write(with_odd_cell("12a"), "x.csv")
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


# Decimal commas.

COMMAS = [f"{k % 2};{k},{k % 10}5;{-k},5e-1;Paris, {k % 3};{k % 4},5" for k in range(ROWS)]
POINTS = [f'{k % 2},{k}.{k % 10}5,{-k}.5e-1,"Paris, {k % 3}",{k % 4}.5' for k in range(ROWS)]


@pytest.mark.parametrize("header", ["label{0}a{0}b{0}c{0}d", None])
@pytest.mark.parametrize("wish", [[], ["--categorical", "d"]])
def test_decimal_commas_are_found_and_read(told, write, tmp_path, header, wish):
    if wish and header is None:
        wish = ["--categorical", "c5"]
    for name, rows, delimiter in (("commas.csv", COMMAS, ";"), ("points.csv", POINTS, ",")):
        write([header.format(delimiter), *rows] if header else rows, name)
        code, text = told("train", name, "-o", f"{name}.m", "--names", *wish)
        assert code == 0 and ("decimal commas: 1,5 is read as 1.5 (data.decimal)" in text) == (delimiter == ";")
    predicted = [told("predict", f"{one}.csv.m", f"{other}.csv", "--scores") for one, other in PAIRS]
    assert predicted[0][0] == 0 and all(one == predicted[0] for one in predicted)
    told("convert", "commas.csv", "c.parquet")
    told("convert", "points.csv", "p.parquet")
    assert pq.read_table(tmp_path / "c.parquet").equals(pq.read_table(tmp_path / "p.parquet"))


PAIRS = [("points", "points"), ("points", "commas"), ("commas", "commas"), ("commas", "points")]


def test_numbers_of_many_digits_with_a_comma(told, write, tmp_path):
    spelled = ["0,1000000014901161193847656250001", "3,4028235e38", "16777217,000000000000000000001", "7,", ",5"]
    write(["label;a;name", *(f"{k % 2};{spelled[k % 5]};x{k % 5}" for k in range(ROWS))], "c.csv")
    write(["label;a;name", *(f"{k % 2};{spelled[k % 5].replace(',', '.')};x{k % 5}" for k in range(ROWS))], "p.csv")
    for name in ("c", "p"):
        assert told("convert", f"{name}.csv", f"{name}.svm")[0] == 0
    assert (tmp_path / "c.svm").read_bytes() == (tmp_path / "p.svm").read_bytes()
    told("train", "c.csv", "-o", "m")
    assert told("predict", "m", "c.csv", "--keep", "a")[1].splitlines()[1].startswith('"0,10000000149')


def test_points_and_commas_are_not_guessed_at(told, write):
    write(["label;a;b", *(f"{k % 2};{k},5;{k}.25" for k in range(ROWS))], "x.csv")
    code, text = told("train", "x.csv", "-o", "m")
    assert code == 0 and "decimal" not in text and "column a: values such as '0,5' are no numbers as they are" in text
    code, text = told("train", "x.csv", "-o", "m", "--set", "data.decimal=,")
    assert code == 0 and "1 numeric (a)" in text
    write(["label;a", *(f"{k % 2};{k + 1},000" for k in range(ROWS))], "t.csv")
    code, text = told("train", "t.csv", "-o", "m")
    assert "decimal" not in text and "values such as '1,000' are no numbers" in text
    write(["label;a", *(f"{k % 2};{k},{'5' if k != 77 else '5.5'}" for k in range(ROWS))], "y.csv")
    code, text = told("train", "y.csv", "-o", "m")
    assert code == 4 and "y.csv:79: column a: '77,5.5' is not a number" in text


# Encodings.

CAFES = ["label,city,x", *(f"{k % 2},{'Montréal' if k % 3 else 'Paris'},{k % 9}.5" for k in range(ROWS))]


@pytest.mark.parametrize(
    ("encoding", "found", "remedy"),
    [
        ("latin-1", "line 3 has the byte 0xE9", "iconv -f CP1252 -t UTF-8 < old > new"),
        ("utf-16-le", "every other byte is 0", "iconv -f UTF-16LE -t UTF-8 < old > new"),
    ],
)
def test_text_that_is_not_utf8_is_refused_with_the_remedy(told, put, encoding, found, remedy):
    put("x.csv", "\n".join(CAFES).encode(encoding))
    put("good.csv", "\n".join(CAFES).encode())
    assert told("train", "good.csv", "-o", "m", "--label", "label")[0] == 0
    for command in (["train", "x.csv", "--label", "label"], ["predict", "m", "x.csv"], ["train", "good.csv", "x.csv"]):
        code, line = refused(told, *command)
        assert code == 3 and line.startswith(f"x.csv: this is no text in UTF-8 ({found}); convert it: {remedy}")


def test_bytes_can_be_taken_as_they_are(told, put):
    put("x.csv", "\n".join(CAFES).encode("latin-1"))
    assert told("train", "x.csv", "-o", "m", "--set", "data.encoding=bytes")[0] == 0
    put("x.jsonl", '{"label": 1, "city": "Montréal"}\n'.encode("latin-1") * 20)
    code, line = refused(told, "predict", "m", "x.jsonl")
    assert code == 3 and "no text in UTF-8 (line 1 has the byte 0xE9)" in line


# Where output goes.


@pytest.fixture
def ended(write, tmp_path, run):
    """Runs a command line in a shell: exit code and standard error."""
    write(CAFES, "x.csv")
    assert run("train", "x.csv", "-o", "m", "--quiet")[0] == 0

    def ended(command, **environment):
        command = command.replace("streamsvm", f"{sys.executable} -m streamsvm")
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, timeout=120
        )
        return done.returncode, done.stderr.decode("utf-8", "replace")

    return ended


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "command", ["predict m x.csv", "evaluate m x.csv", "inspect m", "--help", "convert x.csv - --to svm"]
)
def test_a_full_disk_behind_standard_output_is_told_in_one_line(ended, command):
    code, err = ended(f"streamsvm {command.replace('svm', 'libsvm')} > /dev/full")
    lines = [line for line in err.splitlines() if not line.startswith(("# ", "compiling ", "features: "))]
    assert code == 3 and lines[-1] == "streamsvm: standard output: cannot write: No space left on device", err
    assert "Traceback" not in err


def test_a_terminal_that_knows_only_ascii_is_written_to(ended):
    code, err = ended("streamsvm inspect x.csv > out.txt", LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii:strict")
    assert code == 0 and not err
    assert ended("streamsvm predict m x.csv > /dev/null", LC_ALL="C", PYTHONUTF8="0")[0] == 0


def test_labels_that_are_missing_or_mixed_are_told():
    rows = np.eye(3)
    for labels in (["a", None, "b"], np.array([1.0, None, 0.0], object)):
        with pytest.raises(ValueError, match=r"row 2 has no label \(None\): leave such rows out, or give them a class"):
            StreamSVC().fit(rows, labels)
    with pytest.raises(ValueError, match="some labels are texts and some are numbers: make them one kind"):
        StreamSVC().fit(rows, np.array(["a", 1, "b"], object))
