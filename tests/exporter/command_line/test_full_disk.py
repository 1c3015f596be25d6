"""A disk on which nothing more can be written: each command says what it could not write, and advises."""

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from ensemble_command import PROGRAM, ensemble

ADVICE = "Check the free space and the permissions of the disk."


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"a": range(9)}).write_parquet("rows.parquet")
    code = "from workflow import Workflow\nworkflow = Workflow(['a'])\n"
    (tmp_path / "flow.py").write_text(code)
    return tmp_path


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("inspect rows.parquet --html page.html", "page.html"),
        ("inspect rows.parquet --save facts.json", "facts.json"),
        ("inspect rows.parquet --generate made.parquet", "made.parquet"),
        ("fit flow.py rows.parquet --output saved", "saved"),
        ("fit flow.py rows.parquet --transform-to train", "workflow"),
        ("init shop", "shop"),
        ("demo try_it --rows 1000", "try_it"),
    ],
)
def test_the_place_and_the_remedy_are_said(command, place, full_disk):
    with full_disk(50):
        result = ensemble(*command.split())
    assert result.exit_code == 1
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert place in line
    assert "File too large" in line
    assert line.endswith(ADVICE)


@pytest.mark.usefixtures("rows")
def test_the_network_has_a_place_before_it_is_trained(full_disk):
    """It was lost after hours of training."""
    code = "from workflow import Workflow\nworkflow = Workflow(['a', 'b'])\n"
    Path("flow.py").write_text(code)
    pl.DataFrame({"a": [0.0, 1.0] * 5, "b": [0, 1] * 5}).write_parquet("rows.parquet")
    fitted = ensemble("fit", "flow.py", "rows.parquet", "--transform-to", "train")
    assert fitted.exit_code == 0, fitted.output
    with full_disk(0):
        result = ensemble("train", "train", "--label", "b", "--output", "net.keras")
    assert result.exit_code == 1
    assert "able to write net.keras. Received: [Errno 27] File too large" in result.stderr
    assert result.stderr.strip().endswith(ADVICE)
    assert "samples/s" not in result.output


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("size", [50, 1500])
@pytest.mark.parametrize("command", ["init {}", "demo {} --rows 1000"])
def test_a_second_try_finds_the_folder_as_the_first_did(command, size, exists, tmp_path, full_disk):
    folder = tmp_path / "new" / "shop"
    if exists and command.startswith("init"):
        folder.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with full_disk(size):
        assert ensemble(*command.format(folder).split()).exit_code == 1
    assert sorted(tmp_path.rglob("*")) == before
    if command.startswith("init"):
        again = ensemble("init", folder)
        assert again.exit_code == 0, again.output
        assert (folder / ".github" / "workflows" / "proof.yml").is_file()


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("arguments", [["inspect", "rows.parquet"], ["--help"]])
def test_an_output_that_is_full_is_said(arguments):
    command = [sys.executable, "-c", PROGRAM, *arguments]
    environment = os.environ | {"COLUMNS": "80"}
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    assert done.returncode == 1
    assert "able to write the command's files and its output" in done.stderr
    assert "No space left on device" in done.stderr


def test_an_error_as_json_that_cannot_be_written_is_a_line():
    command = [sys.executable, "-c", PROGRAM, "verify", "shop", "--repository", "none", "--json"]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: Expected a model repository. Received: none, no such folder.")
