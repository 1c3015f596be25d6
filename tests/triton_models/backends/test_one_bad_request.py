"""Whatever is wrong with one request, those that came with it are answered.

The backends' common part runs here without a server, with the requests of one `execute` as a real
one would rarely bring them together.
"""

import json

import numpy as np
import pytest
from stand_in import StandInTensor

INPUTS = {"tags__values": "TYPE_INT64", "tags__nnzs": "TYPE_INT64", "wide": "TYPE_FP32"}


class Request:
    def __init__(self, arrays, wanted=("rows",)):
        self.inputs = lambda: [StandInTensor(*item) for item in arrays.items()]
        self._wanted = wanted

    def requested_output_names(self):
        if self._wanted is None:
            raise RuntimeError("the names cannot be read")
        return self._wanted


@pytest.fixture
def make_backend(without_server):
    """A backend that answers the width of each row, with the given limits."""
    shared = without_server("model_backend")

    class Widths(shared.ModelBackend):
        flattens = True

        def load(self, *_):
            types_of = {name: shared.TensorType(kind, None) for name, kind in INPUTS.items()}
            self.inputs = types_of | {"wide__width": shared.TensorType("TYPE_INT32", None)}
            self.outputs = {"rows": shared.TensorType("TYPE_INT32", None)}

        def call(self, tensors):
            return {"rows": tensors["wide__width"].reshape(-1, 1)}

    def make(limits):
        backend = Widths()
        backend.initialize(
            {
                "model_config": json.dumps(config(limits)),
                "model_instance_kind": "CPU",
                "model_name": "widths",
            }
        )
        return backend

    return make


def config(limits):
    inputs = [{"name": n, "data_type": t, "dims": [-1]} for n, t in INPUTS.items()]
    inputs[-1]["allow_ragged_batch"] = True
    return {
        "name": "widths",
        "max_batch_size": 8,
        "input": inputs,
        "output": [{"name": "rows", "data_type": "TYPE_INT32", "dims": [1]}],
        "batch_input": [
            {
                "kind": "BATCH_ITEM_SHAPE_FLATTEN",
                "data_type": "TYPE_INT32",
                "source_input": ["wide"],
                "target_name": ["wide__width"],
            }
        ],
        "parameters": {"limits": {"string_value": json.dumps(limits)}},
    }


def arrays(width, **changed):
    values = {
        "tags__values": np.ones((3, 1), np.int64),
        "tags__nnzs": np.array([[3]], np.int64),
        "wide": np.zeros((1, width), np.float32),
    }
    return values | changed


BAD = {
    "lengths that are no numbers": Request(arrays(2, tags__nnzs=np.array([[b"3"]], object))),
    "no width": Request(arrays(2, wide=np.zeros(1, np.float32))),
    "no outputs": Request(arrays(2), wanted=None),
}
MISSING = Request({"wide": np.zeros((1, 2), np.float32)})


@pytest.mark.parametrize("limits", [{}, {"max_list_length": 5}], ids=["unlimited", "limited"])
@pytest.mark.parametrize("case", BAD)
def test_the_others_are_answered(make_backend, case, limits):
    requests = [Request(arrays(4)), BAD[case], Request(arrays(6))]
    first, refused, last = make_backend(limits).execute(requests)
    for (tensors, error), width in ((first, 4), (last, 6)):
        assert error is None
        assert tensors[0].as_numpy().tolist() == [[width]]
    assert refused[1].code == "invalid"
    assert refused[1].text.startswith("The model cannot answer these inputs. Error id ")


def test_a_missing_input_is_named(make_backend):
    (refused,) = make_backend({}).execute([MISSING])
    assert refused[1].text == (
        "The request does not fit the model's inputs. "
        "Expected the input 'tags__values'. Received: ['wide']."
    )


@pytest.mark.parametrize("described", [False, True])
def test_numbers_named_as_row_lengths_are_lengths_in_a_described_model_only(
    described, without_server
):
    """Columns between an ensemble's steps, and inputs of other models, may have any names."""
    shared = without_server("model_backend")
    names = ("tags", "tags__nnzs")

    class Sum(shared.ModelBackend):
        def load(self, *_):
            self.inputs = dict.fromkeys(names, shared.TensorType("TYPE_INT64", (-1, -1)))
            self.outputs = {"rows": shared.TensorType("TYPE_INT64", (-1, 1))}

        def call(self, tensors):
            return {"rows": tensors["tags"] + tensors["tags__nnzs"]}

    column = {"name": "tags", "dtype": "int64", "layout": "padded", "nullable": False}
    parameters = {"inputs": {"string_value": json.dumps([column])}} if described else {}
    backend = Sum()
    backend.initialize(
        {
            "model_config": json.dumps(
                {
                    "name": "sum",
                    "max_batch_size": 0,
                    "input": [
                        {"name": name, "data_type": "TYPE_INT64", "dims": [-1, -1]}
                        for name in names
                    ],
                    "output": [{"name": "rows", "data_type": "TYPE_INT64", "dims": [-1, 1]}],
                    "parameters": parameters,
                }
            ),
            "model_instance_kind": "CPU",
            "model_name": "sum",
        }
    )
    request = {"tags": np.array([[5]]), "tags__nnzs": np.array([[7]])}
    ((tensors, error),) = backend.execute([Request(request)])
    if described:
        assert "Expected tags__nnzs from 0 to the width of the rows, 1." in error.text
    else:
        assert tensors[0].as_numpy().tolist() == [[12]]
