"""The command `ensemble inspect`."""

from pathlib import Path

import polars as pl
import pytest
from ensemble_command import ensemble

from workflow import Inspection


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pl.DataFrame(
        {"userId": [7, 9, 7, None] * 50, "city": ["Ulm", "Köln", None, "Ulm"] * 50}
    )
    frame.write_parquet("rows.parquet")
    return frame


def test_it_prints_saves_and_generates(rows):
    result = ensemble(
        *("inspect", "rows.parquet", "--save", "facts.json", "--html", "facts.html"),
        *("--generate", "made.parquet", "--rows", 40, "--seed", 3),
    )
    assert result.exit_code == 0, result.output
    assert "userId             int64          25.0%         2  66.7%" in result.stdout
    assert "-> Categorify(), embedding 5 x 16: 2 different values" in result.stdout
    assert "made.parquet: 40 random rows" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert Inspection.load("facts.json")["city"].common == [["Ulm", 100], ["Köln", 50]]
    with open("facts.html", encoding="utf-8") as page:  # noqa: PTH123
        assert "Köln" in page.read()
    made = pl.read_parquet("made.parquet")
    assert made.schema == rows.schema
    assert (made.height, made["userId"].null_count()) == (40, 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rows.parquet", "--column", "user"), "Expected columns among userId, city. Received: 'user'"),
        (("none.parquet",), "No parquet file matches 'none.parquet'"),
        (("rows.parquet", "--rows", "5"), "Expected --rows with --generate FILE. Received: --rows 5"),
        (("rows.parquet", "--save", "no/a.json"), "Expected a file in a folder that exists"),
        (("rows.parquet", "--generate", "a.csv"), "Expected the path of a .parquet file"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("rows")
def test_mistakes_are_one_line(arguments, message):
    result = ensemble("inspect", *arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", ["--save", "--html", "--generate"])
@pytest.mark.parametrize("data", ["rows.parquet", "*.parquet", "rows.csv"])
def test_the_data_is_never_replaced(rows, option, data):
    rows.write_csv("rows.csv")
    file = Path(data.replace("*", "rows"))
    before = file.read_bytes()
    result = ensemble("inspect", data, option, file)
    assert result.exit_code == 1
    assert f"Received: {file}, which the results would replace. Name a new one." in result.stderr
    assert file.read_bytes() == before
