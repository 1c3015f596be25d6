"""The models of an export, run from the written files in this process.

Each runs as in its backend: the preprocessing step from its own copy of the interpreter, a
SavedModel by the loader of C++ servers, an ONNX model by onnxruntime with one thread. Requests are
joined by the same code as in the server.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module, util
from pathlib import Path
from threading import Lock
from types import ModuleType

import numpy as np

from exporter.plan.config_pbtxt import config_text, parse_config
from exporter.plan.golden_rows import Tensors
from exporter.plan.model_spec import ModelSpec
from exporter.plan.plan import Plan
from exporter.plan.runtime import INDEX_STEP
from exporter.write.python_step import RUNTIME_PACKAGE
from serving.connection.tensors import from_bytes
from serving.contract import Contract, read_contract
from training.network.onnx_session import call_session, open_session
from training.quiet import quiet
from triton_models.backends import joint_calls
from workflow.schema.dtypes import DTYPES

Call = Callable[[Tensors], Tensors]
# Imported modules belong to the process, and so to the exports of all its threads.
_IMPORTING = Lock()


class WrittenModels:
    """The models of a plan, loaded from their version folders.

    Args:
        plan: the plan that was written.
        folders: the version folder of each model, by its name.

    Attributes:
        contract: a client's view of the published model's config.

    Raises:
        NotImplementedError: a model of a backend that nothing here stands for.
        Exception: any error of a library for files that it cannot load.
    """

    def __init__(self, plan: Plan, folders: Mapping[str, Path]) -> None:
        self.contract = contract_of(plan.published)
        self._models = [
            (spec, _load(spec, folders[spec.name])) for spec in plan.steps or (plan.published,)
        ]

    def answer(self, requests: Sequence[Tensors]) -> list[list[Tensors]]:
        """The answers to simultaneous requests: for each model in turn, one for each request.

        Raises:
            Exception: any error of a library, even if it can answer each request alone.
        """
        answers: list[list[Tensors]] = []
        for spec, call in self._models:
            if answers:
                names = [tensor.name for tensor in spec.inputs]
                requests = [dict(zip(names, reply.values(), strict=True)) for reply in answers[-1]]
            answers.append(_answer(spec, call, requests))
        return answers

    def warm_up(self) -> None:
        """Answer the requests that the server makes of each model before it is ready.

        Raises:
            Exception: any error of a library.
        """
        for spec, call in self._models:
            joins = bool(spec.max_batch_size)
            for request in spec.warm_up:
                tensors = {
                    name: from_bytes(
                        DTYPES[t.dtype].triton, (1,) * joins + tuple(t.dims), t.content
                    )
                    for name, t in request.items()
                }
                _answer(spec, call, [tensors])


def contract_of(spec: ModelSpec) -> Contract:
    """The input and output tensors of a model, as in its config."""
    return read_contract(parse_config(config_text(spec)))


def _answer(spec: ModelSpec, call: Call, requests: Sequence[Tensors]) -> list[Tensors]:
    """The answers of one model, with outputs in the order of its config."""
    failed: list[Exception] = []

    def attempt(tensors: Tensors) -> Tensors:
        try:
            return call(tensors)
        except Exception as error:
            failed.append(error)
            raise

    ragged = [tensor.name for tensor in spec.inputs if tensor.ragged]
    answers = joint_calls.answer([_flattened(spec, one) for one in requests], attempt, ragged)
    successes = [answer for answer in answers if not isinstance(answer, Exception)]
    if failed or len(successes) < len(answers):
        raise (failed or [a for a in answers if isinstance(a, Exception)])[0]
    return [{tensor.name: one[tensor.name] for tensor in spec.outputs} for one in successes]


def _flattened(spec: ModelSpec, request: Tensors) -> Tensors:
    """A request with ragged tensors in the onnxruntime backend's form: values and widths."""
    tensors = dict(request)
    for width_name, name in spec.widths.items():
        tensors[width_name] = np.full(len(request[name]), request[name].shape[1], np.int32)
        tensors[name] = request[name].reshape(-1)
    return tensors


def _load(spec: ModelSpec, folder: Path) -> Call:
    if spec.backend not in _BACKENDS:
        raise NotImplementedError(
            f"exporter/prove/written.py cannot run a model of the backend {spec.backend!r}, so that no "
            "export with it can be proven."
        )
    return _BACKENDS[spec.backend](spec, folder)


def _python(spec: ModelSpec, folder: Path) -> Call:
    return _items(spec, folder) if INDEX_STEP in spec.parameters else _program(spec, folder)


def _items(spec: ModelSpec, folder: Path) -> Call:
    # Of an extra.
    from triton_models.nearest_items.search import ItemSearch  # noqa: PLC0415

    search, vector = ItemSearch(folder), spec.inputs[0].name
    k = spec.outputs[0].dims[1]
    return lambda tensors: search.answer(tensors[vector], k)


def _program(spec: ModelSpec, folder: Path) -> Call:
    with _IMPORTING, _copied_package(folder / RUNTIME_PACKAGE) as module_of:
        wire, packed_tensor = module_of("wire.format"), module_of("wire.packed_tensor")
        program_json = module_of("expressions.program.program_json")
        interpreter = module_of("expressions.numpy.interpreter")
        inputs, outputs = (wire.parse_columns(spec.parameters[s]) for s in ("inputs", "outputs"))
        packed = packed_tensor.parse_packing(spec.parameters["packing"])
        run = interpreter.NumpyInterpreter(program_json.load_program(folder))

    def call(tensors: Tensors) -> Tensors:
        columns = run({column.name: wire.decode_request(column, tensors) for column in inputs})
        answer: Tensors = {}
        for column in outputs:
            answer |= wire.encode(column, columns[column.name])
        return dict(packed_tensor.pack(answer, packed))

    return call


@contextmanager
def _copied_package(folder: Path) -> Iterator[Callable[[str], ModuleType]]:
    """The modules of an exported package by name; no module stays imported, and no file is written."""
    name = f"_{RUNTIME_PACKAGE}_to_prove"
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec = util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise ImportError(str(folder))
        sys.modules[name] = util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
        yield lambda module: import_module(f"{name}.{module}")
    finally:
        sys.dont_write_bytecode = before
        for full_name in [module for module in sys.modules if module.partition(".")[0] == name]:
            del sys.modules[full_name]


def _saved_model(spec: ModelSpec, folder: Path) -> Call:
    # One backend of three.
    import tensorflow as tf  # noqa: PLC0415

    from exporter.write.saved_model import FOLDER, GRAPH_TAG  # noqa: PLC0415

    # On a GPU an id beyond a table is not an error, and products differ from those on a CPU.
    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    with session.graph.as_default(), quiet("tensorflow", logging.ERROR):
        loaded = tf.compat.v1.saved_model.load(session, [GRAPH_TAG], str(folder / FOLDER))
    signature = loaded.signature_def[spec.parameters["TF_SIGNATURE_DEF"]]
    fetched = {tensor.name: signature.outputs[tensor.name].name for tensor in spec.outputs}

    def call(tensors: Tensors) -> Tensors:
        fed = {signature.inputs[name].name: array for name, array in tensors.items()}
        return dict(session.run(fetched, fed))

    return call


def _onnx(spec: ModelSpec, folder: Path) -> Call:
    session = open_session(folder / "model.onnx")
    names = [tensor.name for tensor in spec.outputs]
    return lambda tensors: call_session(session, names, tensors)


_BACKENDS: Mapping[str, Callable[[ModelSpec, Path], Call]] = {
    "python": _python,
    "tensorflow": _saved_model,
    "onnxruntime": _onnx,
}
