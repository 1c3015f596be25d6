"""The code that answers requests in each runtime's server, opened in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import onnxruntime
import pytest
import tensorflow as tf
from served_faces import Tensors, Wires
from stand_in import StandInTensor, backend_loader

from exporter.write import python_step
from triton_models.backends.joint_calls import attempt, check_padded_lengths
from workflow.expressions.fold_tables import fold_tables
from workflow.expressions.onnx import OUTPUT_SUFFIX, WIDTHS_SUFFIX, save_onnx, to_onnx
from workflow.expressions.program.program import Program
from workflow.expressions.program.program_json import save_program
from workflow.expressions.tensorflow import WireInterpreter
from workflow.schema.dtypes import DTYPES
from workflow.schema.schema import Schema
from workflow.schema.training_data import TrainingData
from workflow.wire.format import WireColumn, dump_columns

Serve = Callable[[Tensors], Tensors]
Open = Callable[[Program, Wires], Serve]


class RefusedError(Exception):
    """The runtime's refusal of a request."""


class Request:
    """A request as Triton hands it to a Python model."""

    def __init__(self, tensors: Tensors, outputs: list[str]) -> None:
        self.inputs = lambda: [StandInTensor(*item) for item in tensors.items()]
        self.requested_output_names = lambda: outputs


@contextmanager
def opened_faces(folder: Path) -> Iterator[Mapping[str, Open]]:
    """The runtimes by name, each a function that opens a program."""
    with pytest.MonkeyPatch.context() as patch:
        load = backend_loader(patch, folder)
        patch.setattr(sys, "path", [*sys.path])
        python_step.writer(Program(Schema([]), (), ()), TrainingData())(folder)
        step = load("model", folder)
        onnx = load("model", "triton_models/backends/onnxruntime")
        yield {
            "python": lambda program, wires: _python(step, folder, program, wires),
            "tensorflow": _tensorflow,
            "onnx": lambda program, wires: _onnx(onnx, folder, program, wires),
        }
        for name in [n for n in sys.modules if n.partition(".")[0] == "preprocess_runtime"]:
            del sys.modules[name]


def _asked(model, outputs: list[str]) -> Serve:
    def serve(tensors: Tensors) -> Tensors:
        [(made, error)] = model.execute([Request(tensors, outputs)])
        if error is not None:
            assert error.code == "invalid", error.text
            raise RefusedError(error.text)
        return {tensor.name(): tensor.as_numpy() for tensor in made}

    return serve


def _python(module, folder: Path, program: Program, wires: Wires) -> Serve:
    save_program(fold_tables(program), folder)
    module.HERE = folder
    described = {"inputs": dump_columns(wires.inputs), "outputs": dump_columns(wires.outputs)}
    described |= {"packing": "{}", "limits": "{}"}
    parameters = {name: {"string_value": text} for name, text in described.items()}
    model = module.TritonPythonModel()
    model.initialize({"model_config": json.dumps({"parameters": parameters})})
    return _asked(model, [])


def _tensorflow(program: Program, wires: Wires) -> Serve:
    module = WireInterpreter(program, wires.inputs, wires.outputs)
    run = tf.function(module, input_signature=[module.signature], autograph=False)

    def serve(tensors: Tensors) -> Tensors:
        fed = {name: tf.constant(t, module.signature[name].dtype) for name, t in tensors.items()}
        # The graph cuts lengths to the rows, so our backend refuses them before the call.
        refused = attempt(check_padded_lengths, tensors)
        if refused is not None:
            raise RefusedError(str(refused))
        try:
            return {name: tensor.numpy() for name, tensor in run(fed).items()}
        except tf.errors.InvalidArgumentError as error:
            raise RefusedError(error.message) from error

    return serve


def _onnx(module, folder: Path, program: Program, wires: Wires) -> Serve:
    save_onnx(to_onnx(program, wires.inputs, wires.outputs), folder / "model.onnx")
    # What Triton reads in a config.pbtxt: without the rows where it joins requests.
    ragged = [c for c in wires.inputs if c.layout == "padded" and c.width is None]
    batched = bool(ragged)
    config = {
        "name": "wire",
        "max_batch_size": 8 if batched else 0,
        "input": [t for c in wires.inputs for t in _declared(c, "", batched=batched)],
        "output": [t for c in wires.outputs for t in _declared(c, OUTPUT_SUFFIX, batched=batched)],
        "batch_input": [
            {
                "kind": "BATCH_ITEM_SHAPE_FLATTEN",
                "data_type": "TYPE_INT32",
                "source_input": [column.name],
                "target_name": [column.name + WIDTHS_SUFFIX],
            }
            for column in ragged
        ],
        "parameters": {"inputs": {"string_value": dump_columns(wires.inputs)}},
    }
    onnxruntime.set_default_logger_severity(4)  # refused requests are expected here
    backend = module.TritonPythonModel()
    arguments = {"model_config": json.dumps(config), "model_instance_kind": "CPU"}
    backend.initialize(arguments | {"model_name": "wire"})
    serve = _asked(backend, [tensor["name"] for tensor in config["output"]])
    return lambda tensors: {
        name.removesuffix(OUTPUT_SUFFIX): tensor for name, tensor in serve(tensors).items()
    }


def _declared(column: WireColumn, suffix: str, *, batched: bool) -> list[dict[str, object]]:
    return [
        {
            "name": name + suffix,
            "data_type": DTYPES[dtype].triton_config,
            "dims": list(column.shapes[name][batched:]),
            "allow_ragged_batch": not suffix and column.shapes[name][1] < 0,
        }
        for name, dtype in column.tensors.items()
    ]
