"""Definitions that a command loads from a user's own file."""

import sys
from pathlib import Path

import pytest

from exporter.command_line.guard import CommandError
from exporter.command_line.user_code import load_object

DATACLASS = """
from __future__ import annotations

from dataclasses import dataclass, fields

@dataclass
class Settings:
    rows: int = 3

workflow = [(field.name, field.type) for field in fields(Settings)]
"""


@pytest.fixture(autouse=True)
def _own_path(monkeypatch):
    """Keep the folders of users' files from other tests' child processes."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize("name", ["features.py", "workflow.py"])
def test_a_file_may_define_dataclasses_whose_annotations_are_texts(tmp_path: Path, name: str):
    file = tmp_path / name
    file.write_text(DATACLASS)
    before = dict(sys.modules)
    assert load_object(str(file), "workflow") == [("rows", "int")]
    assert dict(sys.modules) == before


@pytest.mark.parametrize("end", ["raise SystemExit", "import sys; sys.exit(3)"])
def test_a_file_that_ends_the_process_is_an_error(tmp_path: Path, end: str):
    file = tmp_path / "features.py"
    file.write_text(f"workflow = 1\n{end}\n")
    with pytest.raises(
        CommandError, match=r"features\.py to run\. Received: SystemExit.* in line 2"
    ):
        load_object(str(file), "workflow")


def test_a_module_that_lacks_another_one_is_not_said_to_be_missing(tmp_path: Path, monkeypatch):
    (tmp_path / "absent_features.py").write_text("import absent\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        CommandError, match=r"absent_features to run\. Received: ModuleNotFoundError"
    ):
        load_object("absent_features:workflow", "workflow")
