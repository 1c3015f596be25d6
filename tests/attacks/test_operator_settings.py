"""Every operator, by its own examples: no setting and no state of another kind gets past loading."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from spoiling import STATE, spoil

from benchmarks.measure import memory_gb, peak_memory
from workflow import Workflow, WorkflowError, WorkflowFormatError
from workflow.expressions.program.safetensors_file import read_arrays, write_arrays
from workflow.operator.operator import OPERATORS, Example

LARGE = 2**40
VALUES: list[Any] = [
    None,
    True,
    -1,
    LARGE,
    10**400,
    1.5,
    1e308,
    "",
    "../../x",
    [],
    [1],
    ["x", None],
    [["x"]],
    {},
    {"x": 1},
    {"x": {"y": []}},
]
OF_NO_KIND = [[[[1]]], {"x": {"y": {"z": {}}}}]
EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for name, operator in sorted(OPERATORS.items())
    for number, example in enumerate(operator.examples())
]
FIRST = [parameter for parameter in EXAMPLES if str(parameter.id).endswith("-0")]


def save(example: Example, folder: Path) -> Path:
    columns = pl.DataFrame(dict(example.columns))
    left = list(example.left or columns.columns)
    Workflow(left >> example.operator).fit(columns).save(folder)
    Workflow.load(folder)  # What a first load imports is not held against a spoilt one.
    return folder / "workflow.json"


def load(folder: Path) -> Workflow | None:
    """The workflow, or None where it is refused: soon, in little memory and in few words."""
    start, before = time.process_time(), memory_gb("VmRSS")
    with peak_memory() as peak:
        loaded, message = load_or_refuse(folder)
    # Processor time, of which a busy machine takes no more than an idle one.
    assert time.process_time() - start < 1
    assert (peak[0] - before) * 1024 < 200
    assert len(message) < 2_000, "a message is no copy of the file"
    return loaded


def load_or_refuse(folder: Path) -> tuple[Workflow | None, str]:
    try:
        return Workflow.load(folder), ""
    except WorkflowFormatError as error:
        return None, str(error)


def operator_of(document: Any) -> dict[str, Any]:
    return [node for node in document["nodes"] if node["kind"] == "operator"][-1]


def with_config(path: Path, document: Any, config: dict[str, Any]) -> Workflow | None:
    changed = json.loads(json.dumps(document))
    operator_of(changed)["config"] = config
    spoil(path.parent, lambda folder: (folder / path.name).write_text(json.dumps(changed)) and None)
    return load(path.parent)


@pytest.mark.parametrize("example", FIRST)
def test_settings_of_another_kind_are_refused(example: Example, tmp_path):
    path = save(example, tmp_path / "saved")
    document = json.loads(path.read_text())
    config = operator_of(document)["config"]
    assert with_config(path, document, config)
    for name in config:
        for value in VALUES:
            loaded = with_config(path, document, config | {name: value})
            if loaded is not None and value != LARGE:  # It is one that is allowed, so it works.
                with contextlib.suppress(WorkflowError):
                    loaded.transform(pl.DataFrame(dict(example.columns))).collect()
        for value in OF_NO_KIND:
            assert not with_config(path, document, config | {name: value}), f"{name}={value}"
        assert not with_config(path, document, {k: v for k, v in config.items() if k != name})
    assert not with_config(path, document, config | {"code": "x"})


def spoilt(held: dict[str, np.ndarray]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """States with one array missing, of another kind, or of another length."""
    for name, array in held.items():
        rest = {other: kept for other, kept in held.items() if other != name}
        yield f"without {name}", rest
        yield f"{name} in two dimensions", rest | {name: array.reshape(-1, 1)}
        yield f"{name} longer", rest | {name: np.concatenate([array, array[:1], array[:1]])}
        for kind in (np.bool_, np.float32, np.uint16):
            if array.dtype != kind:
                yield f"{name} of {kind.__name__}", rest | {name: np.zeros(array.shape, kind)}
    yield "a state more", held | {"1.nothing.values": np.arange(3)}


@pytest.mark.parametrize("example", EXAMPLES)
def test_state_of_another_kind_is_refused(example: Example, tmp_path):
    folder = save(example, tmp_path / "saved").parent
    (path,) = folder.glob("state-*")
    held = {name: array.copy() for name, array in read_arrays(path).items()}
    for what, arrays in spoilt(held):
        spoil(folder, lambda saved, arrays=arrays: write_arrays(saved / STATE, arrays))
        loaded = load(folder)
        must_refuse = "two dimensions" in what or "more" in what
        assert not (loaded and must_refuse), what
