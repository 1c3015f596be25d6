"""Programs in files: a JSON document and its tables, read back with every step validated.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...schema.column import Array, Column, Strings
from ...schema.dtypes import DTYPES, SchemaError
from ...schema.schema import ColumnSchema, Schema
from ..language.types import ExpressionError, Root, Type, check_constant, table_dtype
from ..language.verbs import VERBS, element_root
from .program import Program, Step
from .safetensors_file import (
    FormatError,
    column_to_arrays,
    columns_from_arrays,
    read_arrays,
    read_json,
    write_arrays,
    write_json,
)

FORMAT = 1


def save_program(program: Program, folder: str | os.PathLike[str]) -> None:
    """Write a program as `program.json` and `program.safetensors` into a folder.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["price"] >> ops.FillMissing(0)).fit({"price": [1.5, None]})
        >>> save_program(workflow.program, ".")
        >>> load_program(".").output_schema
        Schema(price: float64)
    """
    tables: dict[str, Array] = {}
    write_json(os.path.join(folder, "program.json"), program_to_json(program, tables))  # noqa: PTH118
    write_arrays(os.path.join(folder, "program.safetensors"), tables)  # noqa: PTH118


def load_program(folder: str | os.PathLike[str]) -> Program:
    """Read a program that `save_program` wrote.

    Raises:
        FormatError: the files are missing, damaged or have content that no program can have.
    """
    path = os.path.join(folder, "program.json")  # noqa: PTH118
    document = read_json(path)
    arrays = read_arrays(os.path.join(folder, "program.safetensors"))  # noqa: PTH118
    return program_from_json(document, columns_from_arrays(arrays, path))


def program_to_json(program: Program, tables: dict[str, Array] | None = None) -> dict[str, Any]:
    """A JSON-able document; the arrays of the program's tables go into `tables`, or into the document.

    Raises:
        FormatError: a table for the document has lists, nulls or infinite numbers.
    """
    return {
        "format": FORMAT,
        "inputs": program.inputs.to_json(),
        "steps": [_step_to_json(step, tables) for step in program.steps],
        "outputs": [{"column": column.to_json(), "step": step} for column, step in program.outputs],
    }


def _step_to_json(step: Step, tables: dict[str, Array] | None) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for key, value in step.parameters.items():
        if isinstance(value, Column) and tables is None:
            parameters[key] = _values_to_json(step.verb, value)
        elif isinstance(value, Column) and tables is not None:
            name = f"table{len(tables)}"
            tables.update(column_to_arrays(name, value))
            parameters[key] = {"table": name}
        elif isinstance(value, float) and not math.isfinite(value):
            parameters[key] = {"float": str(value)}
        else:
            parameters[key] = value
    if step.verb == "constant":
        parameters["dtype"] = step.type.dtype
    return {"verb": step.verb, "operands": list(step.operands), "parameters": parameters}


def _values_to_json(verb: str, table: Column) -> dict[str, Any]:
    real = table_dtype(table).kind == "float"
    plain = not table.is_list and table.valid is None
    if not plain or (real and not np.isfinite(table.array).all()):
        raise FormatError(f"the table of {verb} holds lists, nulls or numbers that are not finite.")
    return {"dtype": table_dtype(table).name, "values": table.array.tolist()}


def program_from_json(
    document: Any, tables: Mapping[str, Column] | None = None, *, is_trace: bool = False
) -> Program:
    """The program described by a result of `program_to_json`.

    Args:
        document: the result.
        tables: the program's tables, unless they are in the document.
        is_trace: whether its inputs may be lists of the same elements, as only `tracing.inline` can tell.

    Raises:
        FormatError: the document has content that no program can have.
    """
    try:
        return _Reader(document, tables or {}, is_trace=is_trace).program()
    except (ExpressionError, SchemaError) as error:
        raise FormatError(f"program: {error}") from error


class _Reader:
    """A reader of a document, step by step; each step knows the steps before it."""

    def __init__(self, document: Any, tables: Mapping[str, Column], *, is_trace: bool) -> None:
        _expect_keys(document, "format", "inputs", "steps", "outputs")
        if document["format"] != FORMAT:
            raise FormatError(f"expected format {FORMAT}. Received: {document['format']!r}.")
        self.document = document
        self.tables = tables
        self.is_trace = is_trace
        self.inputs = Schema.from_json(document["inputs"])
        self.steps: list[Step] = []
        self.roots: list[Root] = []

    def program(self) -> Program:
        for entry in _expect(self.document["steps"], list):
            self._add(self._step(entry))
        outputs = [self._output(entry) for entry in _expect(self.document["outputs"], list)]
        _ = Schema(column for column, _ in outputs)  # refuses two outputs with one name
        return Program(self.inputs, tuple(self.steps), tuple(outputs))

    def _add(self, step: Step) -> None:
        types = [self.steps[o].type for o in step.operands]
        roots = [self.roots[o] for o in step.operands]
        own = None if step.verb == "constant" else len(self.steps)
        if self.is_trace and step.verb == "source" and step.type.is_list:
            own = -1
        self.roots.append(element_root(step.verb, step.type, types, roots, own))
        self.steps.append(step)

    def _step(self, entry: Any) -> Step:
        _expect_keys(entry, "verb", "operands", "parameters")
        verb, raw = _expect(entry["verb"], str), _expect(entry["parameters"], dict)
        operands = tuple(self._position(o) for o in _expect(entry["operands"], list))
        arity = VERBS[verb].arity if verb in VERBS else 0
        if len(operands) != arity:
            raise FormatError(f"{verb} takes {arity} operands. Received: {len(operands)}.")
        if verb == "source":
            _expect_keys(raw, "name")
            column = self.inputs[_expect(raw["name"], str)]
            return Step(verb, (), raw, Type(column.dtype, column.is_list, column.nullable))
        parameters = {key: self._parameter(value) for key, value in raw.items()}
        if verb == "constant":
            return _constant(parameters)
        return self._verb(verb, operands, parameters)

    def _verb(self, verb: str, operands: tuple[int, ...], parameters: dict[str, Any]) -> Step:
        if verb not in VERBS:
            raise FormatError(f"unknown verb {verb!r}.")
        known = VERBS[verb]
        _expect_keys(parameters, *known.parameters)
        type_ = known.type_of([self.steps[o].type for o in operands], parameters)
        return Step(verb, operands, parameters, type_)

    def _parameter(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if value.keys() == {"float"} and value["float"] in ("inf", "-inf", "nan"):
            return float(value["float"])
        if value.keys() == {"dtype", "values"}:
            return _values(_known_dtype(value["dtype"]), _expect(value["values"], list))
        _expect_keys(value, "table")
        name = _expect(value["table"], str)
        if name not in self.tables:
            raise FormatError(f"there is no table {name!r}.")
        return self.tables[name]

    def _output(self, entry: Any) -> tuple[ColumnSchema, int]:
        _expect_keys(entry, "column", "step")
        column, step = ColumnSchema.from_json(entry["column"]), self._position(entry["step"])
        made = self.steps[step].type
        if Type(column.dtype, column.is_list, column.nullable) != made:
            raise FormatError(
                f"output {column.name!r} is said to be {column}, and its step makes {made}."
            )
        return column, step

    def _position(self, value: Any) -> int:
        if type(value) is not int or not 0 <= value < len(self.steps):
            raise FormatError(f"expected the number of an earlier step. Received: {value!r}.")
        return value


def _constant(parameters: dict[str, Any]) -> Step:
    _expect_keys(parameters, "value", "dtype")
    dtype = _known_dtype(parameters["dtype"])
    value = parameters["value"]
    return Step("constant", (), {"value": value}, Type.of_constant(value, dtype))


def _known_dtype(value: Any) -> str:
    dtype: str = _expect(value, str)
    if dtype not in DTYPES:
        raise FormatError(f"unknown dtype {dtype!r}.")
    return dtype


def _values(dtype: str, values: list[Any]) -> Column:
    for value in values:
        check_constant(value, dtype)
    return Column(
        Strings.of(values) if dtype == "string" else np.array(values, DTYPES[dtype].numpy)
    )


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise FormatError(f"expected a {kind.__name__}. Received: a {type(value).__name__}.")
    return value


def _expect_keys(value: Any, *keys: str) -> None:
    if not isinstance(value, dict) or value.keys() != set(keys):
        received = ", ".join(map(str, value)) if isinstance(value, dict) else type(value).__name__
        raise FormatError(
            f"expected an object with the keys {', '.join(keys)}. Received: {received:.200}."
        )
