"""Tables as people have them: what is wrong with them is told in one line with the remedy, and nothing is misread."""

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
