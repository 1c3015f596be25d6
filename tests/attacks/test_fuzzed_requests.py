"""Whatever tensors a request has, it is answered or refused in a fixed text, and so are its neighbours.

The preprocessing step runs here without a server, with the requests of one `execute`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from stand_in import StandInTensor, backend_loader

from exporter.write import python_step
from workflow import Workflow, ops
from workflow.schema.training_data import TrainingData
from workflow.wire.format import WireColumn, dump_columns

ROWS = {"user": [7, 7, None], "tags": [["a", "b"], [], ["é"]], "price": [1.0, 2.0, None]}
NUMBERS = [0, 1, 7, -1, 2**31, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.5, -1e308, float("inf"), float("nan")]
STRINGS = [b"", b"a", "é".encode(), b"\xff", b"\xfe\xfe", b"a\0b", b"x" * 10_000]
VALUES = {"int64": NUMBERS, "float64": FLOATS, "object": STRINGS, "int32": [0, -1, 2**31 - 1]}
LIMITS = {"max_rows": 5, "max_list_length": 4, "max_string_bytes": 100}


def inputs(layout: str) -> list[WireColumn]:
    return [
        WireColumn("user", "int64", nullable=True),
        WireColumn("tags", "string", layout),
        WireColumn("price", "float64", nullable=True),
    ]


@pytest.fixture(params=["flat", "padded"])
def step(request, tmp_path) -> Iterator[Any]:
    """An exported preprocessing step, as a server would load it."""
    features = (["user", "tags"] >> ops.Categorify()) + (["price"] >> ops.FillMissing(0.0))
    program = Workflow(features).fit(ROWS).program
    outputs = [
        WireColumn("user", "int64"),
        WireColumn("tags", "int64", request.param),
        WireColumn("price", "float64"),
    ]
    described = {"inputs": dump_columns(inputs(request.param)), "outputs": dump_columns(outputs)}
    described |= {"packing": "{}", "limits": json.dumps(LIMITS)}
    config = {"parameters": {name: {"string_value": text} for name, text in described.items()}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        load = backend_loader(patch, tmp_path)
        python_step.writer(program, TrainingData())(tmp_path)
        model = load("model", tmp_path).TritonPythonModel()
        model.initialize({"model_config": json.dumps(config)})
        model.layout = request.param
        yield model
        for name in [n for n in sys.modules if n.partition(".")[0] == "preprocess_runtime"]:
            del sys.modules[name]


def good(layout: str, user: int) -> dict[str, Any]:
    values = np.array([[b"a"], [b"b"]], object)
    tags = {"tags__values": values} if layout == "flat" else {"tags": values.reshape(1, 2)}
    return {
        "user": np.array([[user]]),
        **tags,
        "tags__nnzs": np.array([[2]]),
        "price": np.array([[1.5]]),
    }


class Request:
    def __init__(self, tensors: dict[str, Any]) -> None:
        self.inputs = lambda: [StandInTensor(*item) for item in tensors.items()]


def drawn(data: st.DataObject, tensor: Any, rows: int) -> Any:
    """A tensor of any content, and mostly of the right dtype and shape."""
    usual = st.sampled_from([True] * 9 + [False])
    dtype = str(tensor.dtype) if data.draw(usual) else data.draw(st.sampled_from([*VALUES]))
    width = data.draw(st.integers(0, 6)) if tensor.shape[1] != 1 else 1
    shape: tuple[int, ...] = (rows, width)
    if not data.draw(usual):
        shape = data.draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    return data.draw(arrays.arrays(np.dtype(dtype), shape, elements=st.sampled_from(VALUES[dtype])))


def answers(model: Any, requests: list[dict[str, Any]]) -> list[Any]:
    return model.execute([Request(tensors) for tensors in requests])


def plain(answer: Any) -> dict[str, Any]:
    tensors, error = answer
    assert error is None
    return {tensor.name(): tensor.as_numpy().tolist() for tensor in tensors}


def test_any_tensors_in_a_request(explore, step, capsys):
    first, last = good(step.layout, 7), good(step.layout, 5)
    expected = [plain(*answers(step, [request])) for request in (first, last)]

    def check_request(data: st.DataObject) -> str:
        rows = data.draw(st.integers(0, 4))
        odd = {name: drawn(data, tensor, rows) for name, tensor in first.items()}
        if step.layout == "flat" and data.draw(st.booleans()):
            # Lengths that add up, more often than chance would have it.
            ends = np.sort(data.draw(arrays.arrays(np.int64, 4, elements=st.integers(0, rows))))
            odd["tags__nnzs"] = np.diff(ends, prepend=0, append=rows)[:rows, np.newaxis]
        made = answers(step, [first, odd, last])
        capsys.readouterr()
        assert [plain(made[0]), plain(made[2])] == expected
        tensors, error = made[1]
        if error is None:
            features = {tensor.name(): tensor.as_numpy() for tensor in tensors}
            assert {len(features[name]) for name in ("user", "price", "tags__nnzs")} == {
                len(odd["user"])
            }
            return "answered"
        assert error.code == "invalid", error.text
        assert not any(part in error.text for part in ("/", "Traceback", ".py", "\\x"))
        assert len(error.text) < 200
        return "refused"

    explore(check_request, cases=80, outcomes=["refused", "answered"])
