"""The preprocessing step: runs a fitted workflow's program inside Triton, on numpy alone.

An export copies this file into the model's version folder, beside the program and the package
`preprocess_runtime` that it imports. The requests of one `execute` are read one by one, computed
together, since a program costs about as much for fifty rows as for one, and answered one by one. A
faulty request is answered with a fixed text and INVALID_ARGUMENT, and its details go to the
server's log; the others are answered normally.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
# A repository holds what was exported and no byte code, which would be run instead of it.
sys.dont_write_bytecode = True
shutil.rmtree(HERE / "__pycache__", ignore_errors=True)

from input_metrics import InputMetrics  # noqa: E402 - found beside this file
from preprocess_runtime.expressions.numpy.input_counts import InputCounts  # noqa: E402
from preprocess_runtime.expressions.numpy.interpreter import NumpyInterpreter  # noqa: E402
from preprocess_runtime.expressions.program.program_json import load_program  # noqa: E402
from preprocess_runtime.schema.column import Column  # noqa: E402
from preprocess_runtime.schema.dtypes import DTYPES, SchemaError  # noqa: E402
from preprocess_runtime.schema.training_data import TRAINING_DATA, TrainingData  # noqa: E402
from preprocess_runtime.wire import alike, packed_tensor  # noqa: E402
from preprocess_runtime.wire.format import (  # noqa: E402
    NullError,
    decode_request,
    encode,
    parse_columns,
)
from preprocess_runtime.wire.integrity import expect_exported  # noqa: E402
from preprocess_runtime.wire.request_rules import (  # noqa: E402
    LimitError,
    expect_within,
    parse_limits,
    widens,
)

INVALID = "The request does not fit the model's inputs: {}."
# Rows that are counted between two reports; then counting takes a percent of a core at most.
BUDGET = 65_536
# As in triton_models/healthcheck.py.
HEALTH_CHECK_ID = "health check"
BEYOND = "The request is beyond a limit of the model: {}."


class InputError(ValueError):
    """A request that does not match the description of the inputs; clients may see the text."""


class TritonPythonModel:
    """The interface that Triton's python backend calls."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the program beside this file, and validate it against the config.

        Raises:
            IntegrityError: the files are not those of one export.
            RuntimeError: program and config do not match.
        """
        # A crash of this process has its place in the server's log.
        faulthandler.enable()
        config = json.loads(args["model_config"])
        expect_exported(HERE, config)
        text = {name: value["string_value"] for name, value in config["parameters"].items()}
        self._inputs = parse_columns(text["inputs"])
        self._outputs = parse_columns(text["outputs"])
        self._packing = packed_tensor.parse_packing(text["packing"])
        self._limits = parse_limits(text["limits"])
        program = load_program(HERE)
        for side, columns, schema in (
            ("inputs", self._inputs, program.inputs),
            ("outputs", self._outputs, program.output_schema),
        ):
            described = {column.name: column.dtype for column in columns}
            made = {column.name: column.dtype for column in schema.columns}
            if described != made:
                raise RuntimeError(
                    f"The config describes the {side} {described}, but the program has {made}."
                )
        self._run = NumpyInterpreter(program)
        self._expected = [
            (name, DTYPES[dtype].numpy, column.shapes[name][1])
            for column in self._inputs
            for name, dtype in column.tensors.items()
        ]
        self._dtypes = [dtype for _, dtype, _ in self._expected]
        self._is_plain = all(column.layout == "scalar" for column in self._inputs)
        # Columns of one dtype are read and written together, the others one by one.
        self._groups, self._single = _grouped(self._inputs)
        self._output_groups, self._single_outputs = _grouped(self._outputs)
        # The values of a flat list have another number of rows.
        columns = [*self._inputs, *self._outputs]
        self._elements = {c.values_name for c in columns if c.layout == "flat"}
        self._counts, self._metrics = self._watch(program, config, text, args)
        # Loaded objects stay: the garbage collector need not visit them during requests.
        gc.freeze()

    def _watch(self, program: Any, config: Any, text: Any, args: Any) -> tuple[Any, Any]:
        """Counts of the inputs, and their metrics; None for a server without custom metrics."""
        if not hasattr(pb_utils, "MetricFamily"):  # It came in 23.05.
            return None, None
        training = TrainingData.from_json(json.loads((HERE / TRAINING_DATA).read_bytes()))
        counts = InputCounts(program, training, budget=BUDGET)
        self._warming_up = len(config.get("model_warmup", ()))
        published = text.get("published", config.get("name", ""))
        labels = {"model": published, "version": HERE.name}
        try:
            expected = training.expectations({c.name: c.is_whole_list for c in self._inputs})
            instance = args["model_instance_name"]
            metrics = InputMetrics(
                pb_utils, labels, instance, counts.kinds(), expected, counts.take
            )
        except Exception as error:  # noqa: BLE001 - a server without metrics serves nevertheless
            pb_utils.Logger.log_warn(f"no metrics of the inputs: {error}")
            return None, None
        return counts, metrics

    def finalize(self) -> None:
        """Report the last counts."""
        if self._metrics is not None:
            self._metrics.stop()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer requests; each gets its own response, in order."""
        self._is_counted = self._counts is not None and self._are_clients(requests)
        answers = [self._attempt(self._read, request) for request in requests]
        good = [number for number, answer in enumerate(answers) if isinstance(answer, dict)]
        made = self._answer_all([answers[number] for number in good])
        for number, answer in zip(good, made, strict=True):
            answers[number] = answer
        return answers

    def _are_clients(self, requests: list[Any]) -> bool:
        """Whether requests are from clients: the first ones warm up, and health checks have a name."""
        if self._warming_up > 0:
            self._warming_up -= len(requests)
            return False
        return all(request.request_id() != HEALTH_CHECK_ID for request in requests)

    def _attempt(self, function: Any, argument: Any) -> Any:
        """The result of a function, or the response for its error."""
        try:
            return function(argument)
        except LimitError as error:
            return _refusal(BEYOND.format(error), pb_utils.TritonError.INVALID_ARG)
        except InputError as error:
            pb_utils.Logger.log_warn(f"refused a request: {error.__cause__ or error}")
            return _refusal(INVALID.format(error), pb_utils.TritonError.INVALID_ARG)
        except Exception as error:  # noqa: BLE001 - one request must not take the server down
            pb_utils.Logger.log_error(f"failed on a request: {type(error).__name__}: {error}")
            return _refusal("The preprocessing failed.", pb_utils.TritonError.INTERNAL)

    def _read(self, request: Any) -> dict[str, Any]:
        """The tensors of a request; refuses tensors that do not match the config or exceed a limit."""
        tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if not (self._is_plain and self._is_as_described(tensors)):
            self._expect_described(tensors)
        expect_within(self._limits, tensors, len(tensors[self._expected[-1][0]]))
        return tensors

    def _is_as_described(self, tensors: dict[str, Any]) -> bool:
        """Whether all tensors of single values match the config, compared at once."""
        given = [tensors[name] for name, _, _ in self._expected]
        shapes = {tensor.shape for tensor in given}
        return shapes == {(*given[0].shape[:1], 1)} and [t.dtype for t in given] == self._dtypes

    def _expect_described(self, tensors: dict[str, Any]) -> None:
        """Refuse a request that does not match the config."""
        rows = -1
        for name, dtype, width in self._expected:
            tensor = tensors[name]
            if tensor.dtype != dtype:
                raise InputError(f"{name} is not {dtype}")
            if tensor.ndim != 2 or (tensor.shape[1] != width and width >= 0):
                raise InputError(f"{name} is not of the shape [N, {'L' if width < 0 else width}]")
            if name in self._elements:
                continue
            if rows not in (-1, len(tensor)):
                raise InputError("its columns differ in their number of rows")
            rows = len(tensor)

    def _answer_all(self, requests: list[dict[str, Any]]) -> list[Any]:
        """The responses: from one computation for all, or one by one if that fails."""
        if len(requests) > 1 and not self._elements:
            try:
                made = self._compute(requests)
            except Exception as error:  # noqa: BLE001 - the faulty request fails when computed alone
                pb_utils.Logger.log_verbose(f"computing one by one: {error}")
            else:
                ends = np.cumsum([len(tensors[self._expected[-1][0]]) for tensors in requests])
                return [_respond(part) for part in _slices(made, ends.tolist())]
        return [self._attempt(lambda one: _respond(self._compute([one])), one) for one in requests]

    def _compute(self, requests: list[dict[str, Any]]) -> dict[str, Any]:
        """The output tensors of requests, concatenated."""
        columns = {column.name: _decode(column, requests) for column in self._single}
        for group in self._groups:
            columns |= _decode_group(group, requests)
        results = self._run.results(columns)
        made = self._run.outputs(results)
        tensors: dict[str, Any] = {}
        for column in self._single_outputs:
            if len(requests) > 1 and column.layout == "padded":
                _expect_even(column, made[column.name])
            tensors |= _encode(column, made[column.name])
        for group in self._output_groups:
            tensors |= _encode_group(group, made)
        packed = dict(packed_tensor.pack(tensors, self._packing))
        if self._is_counted:
            self._counts.add(results)
        return packed


def _grouped(columns: list[Any]) -> tuple[Any, list[Any]]:
    """The groups of equal columns of numbers, and the other columns."""
    groups = alike.groups_of(columns)
    inside = {name for _, names in groups for name in names}
    return groups, [column for column in columns if column.name not in inside]


def _expect_even(column: Any, made: Any) -> None:
    """Refuse a joint computation whose lists would be mostly padding; each is computed alone."""
    if widens(len(made.lengths), int(made.lengths.max(initial=0)), len(made.values)):
        raise InputError(f"{column.name} has lists of too different lengths")


def _slices(tensors: dict[str, Any], ends: list[int]) -> list[dict[str, Any]]:
    """The rows of each request."""
    begins = [0, *ends[:-1]]
    return [
        {name: tensor[begin:end] for name, tensor in tensors.items()}
        for begin, end in zip(begins, ends, strict=True)
    ]


def _respond(tensors: dict[str, Any]) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor(*item) for item in tensors.items()])


def _decode(column: Any, requests: list[dict[str, Any]]) -> Any:
    """A column of many requests, concatenated."""
    try:
        if column.is_list or len(requests) == 1:
            return _concatenate([decode_request(column, tensors) for tensors in requests])
        name = column.name
        return decode_request(column, {name: np.concatenate([one[name] for one in requests])})
    except NullError as error:
        raise InputError(f"{column.name} would be null") from error
    except SchemaError as error:
        raise InputError(f"{column.name} cannot be read") from error


def _decode_group(group: Any, requests: list[dict[str, Any]]) -> Any:
    try:
        return alike.decode_group(group, requests)
    except NullError:
        # One by one, so that the error names the column.
        return {n: _decode(replace(group[0], name=n), requests) for n in group[1]}


def _encode(column: Any, made: Any) -> dict[str, Any]:
    try:
        return encode(column, made)
    except SchemaError as error:
        raise InputError(f"{column.name} would be null") from error


def _encode_group(group: Any, made: dict[str, Any]) -> dict[str, Any]:
    column, names = group
    try:
        return alike.encode_group(group, made)
    except SchemaError:
        # One by one, so that the error names the column.
        return {n: t for n in names for t in _encode(replace(column, name=n), made[n]).values()}


def _concatenate(columns: list[Any]) -> Any:
    if len(columns) == 1:
        return columns[0]
    values = np.concatenate([column.array for column in columns])
    valid = None
    if any(column.valid is not None for column in columns):
        masks = [np.ones(len(c.array), bool) if c.valid is None else c.valid for c in columns]
        valid = np.concatenate(masks)
    return Column(values, valid, np.concatenate([column.lengths for column in columns]))


def _refusal(text: str, code: Any) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, code))
