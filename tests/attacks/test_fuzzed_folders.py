"""Damage of any kind ends in one error, or in a workflow or program that runs."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spoiling import STATE, Attack, document_of, spoil

from workflow import Workflow, WorkflowFormatError
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.program.program_json import load_program
from workflow.expressions.program.safetensors_file import FormatError

FUZZ = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(
        ["userId", "int64", "string", "Categorify", "add", "lookup", "source", "../x"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["table", "float", "value", "dtype"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@pytest.fixture
def load_spoilt(good_folder, tmp_path) -> Callable[[Attack], None]:
    """Spoil a copy of a good workflow with its sums put right, and load it."""

    def load(attack: Attack) -> None:
        shutil.rmtree(tmp_path / "spoilt", ignore_errors=True)
        shutil.copytree(good_folder, tmp_path / "spoilt")
        spoil(tmp_path / "spoilt", attack)
        load_workflow(tmp_path / "spoilt")

    return load


@pytest.fixture
def spoilt_program(good_program, tmp_path) -> Path:
    shutil.copytree(good_program, tmp_path / "spoilt")
    return tmp_path / "spoilt"


@contextlib.contextmanager
def kept(path: Path) -> Iterator[bytes]:
    """The file's bytes, put back afterwards."""
    raw = path.read_bytes()
    try:
        yield raw
    finally:
        path.write_bytes(raw)


def load_workflow(folder: Path) -> None:
    with contextlib.suppress(WorkflowFormatError):
        workflow = Workflow.load(folder)
        NumpyInterpreter(workflow.program)


def load_folder(folder: Path) -> None:
    with contextlib.suppress(FormatError):
        NumpyInterpreter(load_program(folder))


def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """A few bytes changed, and perhaps some cut off or added."""
    changed = bytearray(raw)
    for _ in range(draw(st.integers(1, 4))):
        changed[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    end = draw(st.integers(0, len(raw)) | st.just(len(raw)))
    return bytes(changed[:end]) + draw(st.binary(max_size=3))


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a document."""
    yield path
    if isinstance(document, dict | list):
        items = document.items() if isinstance(document, dict) else enumerate(document)
        for key, value in items:
            yield from places(value, (*path, key))


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(document)
    target = changed
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return changed


@pytest.mark.parametrize("name", ["workflow.json", STATE])
@FUZZ
@given(data=st.data())
def test_damaged_bytes_of_a_workflow(load_spoilt, name, data):
    def attack(folder: Path) -> None:
        (folder / name).write_bytes(damaged(data.draw, (folder / name).read_bytes()))

    load_spoilt(attack)


@pytest.mark.parametrize("name", ["program.json", "program.safetensors"])
@FUZZ
@given(data=st.data())
def test_damaged_bytes_of_a_program(spoilt_program, name, data):
    with kept(spoilt_program / name) as raw:
        (spoilt_program / name).write_bytes(damaged(data.draw, raw))
        load_folder(spoilt_program)


@FUZZ
@given(data=st.data())
def test_any_value_in_the_place_of_another_in_a_workflow(load_spoilt, data):
    def attack(folder: Path) -> None:
        document = document_of(folder)
        place = data.draw(st.sampled_from(list(places(document))))
        changed = with_value(document, place, data.draw(JSON_VALUES))
        (folder / "workflow.json").write_text(json.dumps(changed))

    load_spoilt(attack)


@FUZZ
@given(data=st.data())
def test_any_value_in_the_place_of_another_in_a_program(spoilt_program, data):
    with kept(spoilt_program / "program.json") as raw:
        document = json.loads(raw)
        place = data.draw(st.sampled_from(list(places(document))))
        changed = with_value(document, place, data.draw(JSON_VALUES))
        (spoilt_program / "program.json").write_text(json.dumps(changed))
        load_folder(spoilt_program)
