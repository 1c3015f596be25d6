"""Damage of any kind ends in one error, or in a workflow or program that runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damages import damaged, kept, with_another_value
from hypothesis import strategies as st
from spoiling import STATE, Attack, document_of, spoil

from workflow import Workflow, WorkflowFormatError
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.program.program_json import load_program
from workflow.expressions.program.safetensors_file import FormatError


@pytest.fixture
def load_spoilt(good_folder, tmp_path) -> Callable[[Attack], str]:
    """Spoil a copy of a good workflow with its sums put right, and load it."""

    def load(attack: Attack) -> str:
        shutil.rmtree(tmp_path / "spoilt", ignore_errors=True)
        shutil.copytree(good_folder, tmp_path / "spoilt")
        spoil(tmp_path / "spoilt", attack)
        return load_workflow(tmp_path / "spoilt")

    assert load(lambda folder: write(folder, document_of(folder))) == "loaded"
    return load


def write(folder: Path, document: Any) -> None:
    (folder / "workflow.json").write_text(json.dumps(document))


@pytest.fixture
def spoilt_program(good_program, tmp_path) -> Path:
    shutil.copytree(good_program, tmp_path / "spoilt")
    assert load_folder(tmp_path / "spoilt") == "loaded"
    return tmp_path / "spoilt"


def load_workflow(folder: Path) -> str:
    try:
        NumpyInterpreter(Workflow.load(folder).program)
    except WorkflowFormatError:
        return "refused"
    return "loaded"


def load_folder(folder: Path) -> str:
    try:
        NumpyInterpreter(load_program(folder))
    except FormatError:
        return "refused"
    return "loaded"


@pytest.mark.parametrize("name", ["workflow.json", STATE])
def test_damaged_bytes_of_a_workflow(explore, load_spoilt, name):
    def check_workflow_bytes(data: st.DataObject) -> str:
        def attack(folder: Path) -> None:
            (folder / name).write_bytes(damaged(data.draw, (folder / name).read_bytes()))

        return load_spoilt(attack)

    explore(check_workflow_bytes)


@pytest.mark.parametrize("name", ["program.json", "program.safetensors"])
def test_damaged_bytes_of_a_program(explore, spoilt_program, name):
    def check_program_bytes(data: st.DataObject) -> str:
        with kept(spoilt_program / name) as raw:
            (spoilt_program / name).write_bytes(damaged(data.draw, raw))
            return load_folder(spoilt_program)

    explore(check_program_bytes)


def test_any_value_in_the_place_of_another_in_a_workflow(explore, load_spoilt):
    def check_workflow_values(data: st.DataObject) -> str:
        def attack(folder: Path) -> None:
            write(folder, with_another_value(data, document_of(folder)))

        return load_spoilt(attack)

    explore(check_workflow_values)


def test_any_value_in_the_place_of_another_in_a_program(explore, spoilt_program):
    def check_program_values(data: st.DataObject) -> str:
        with kept(spoilt_program / "program.json") as raw:
            changed = with_another_value(data, json.loads(raw))
            (spoilt_program / "program.json").write_text(json.dumps(changed))
            return load_folder(spoilt_program)

    explore(check_program_values, outcomes=["refused", "loaded"])
