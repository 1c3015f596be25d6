"""Inputs and outputs of a model, according to its config on the server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from tritonclient.grpc import model_config_pb2

from serving.errors import ClientError, ColumnError
from serving.inputs.encoder import Encoder
from workflow.schema.column import Array
from workflow.schema.dtypes import DTYPES, dtype_of
from workflow.schema.schema import ColumnSchema, Schema
from workflow.wire.format import WireColumn, parse_columns
from workflow.wire.packed_tensor import Packing, parse_packing, unpack
from workflow.wire.request_rules import (
    NNZS,
    VALUES,
    LimitError,
    expect_within,
    is_list_values,
    parse_limits,
)

# The part of a contract by which values become tensors, and tensors values.
_MEANING = ("inputs", "outputs", "widths", "output_suffix", "packing")
_DTYPES = {info.triton_config: info.name for info in DTYPES.values()}


@dataclass(frozen=True)
class Contract:
    """Inputs and outputs of a model.

    Attributes:
        inputs: the columns to send.
        outputs: the columns that come back.
        label_columns: columns of the training data that must not be sent.
        generation: the generation of the model's export; "" for a model from another tool.
        widths: the second dimension of each output tensor; 1 if the config leaves it open.
        preprocessing: the model that computes the features, if the model is an ensemble of ours.
        max_batch_size: the most rows of a request; 0 for no limit.
        output_suffix: the suffix of the output tensors' names after those of the columns.
        packing: the packed output tensors by name.
        limits: the most rows, values in a list and bytes in a string of a request, by the names in
            `request_rules.LIMITS`.
        network_columns: the network's own name for each renamed input, and the new name, or the
            columns from which a matrix is packed.
        preprocessing_version: the version of that model with which the ensemble answers.
        version: the version that answers, if the config names the versions; else "".
        tolerance: the rounding that the export allows the network, as `check_parity` has it.
    """

    inputs: tuple[WireColumn, ...]
    outputs: tuple[WireColumn, ...]
    label_columns: tuple[str, ...]
    generation: str
    widths: dict[str, int]
    preprocessing: str = ""
    max_batch_size: int = 0
    output_suffix: str = ""
    packing: Packing = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    network_columns: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    preprocessing_version: str = ""
    version: str = ""
    tolerance: float = 1e-5

    @cached_property
    def encoder(self) -> Encoder:
        """Encoder of tables."""
        return Encoder(self.inputs)

    @cached_property
    def input_schema(self) -> Schema:
        """The inputs as columns of raw data, from which CSV and TSV take their types."""
        return Schema(
            ColumnSchema(c.name, c.dtype, c.is_list, c.nullable, time=c.time) for c in self.inputs
        )

    @cached_property
    def padded(self) -> tuple[str, ...]:
        """The list columns whose width each request chooses."""
        return tuple(c.name for c in self.inputs if c.layout == "padded" and c.width is None)

    @cached_property
    def max_rows(self) -> int:
        """The most rows of a request, for whatever reason; 0 for no limit."""
        return min(filter(None, (self.max_batch_size, self.limits.get("max_rows"))), default=0)

    @cached_property
    def _limited(self) -> tuple[str, ...]:
        """The tensors that have a limit in addition to the limit of rows."""
        strings = (t for c in self.inputs for t, dtype in c.tensors.items() if dtype == "string")
        lists = (tensor for c in self.inputs if c.is_list for tensor in c.tensors)
        return tuple(dict.fromkeys([*strings, *lists]))

    def expect_within_limits(self, request: Mapping[str, Array]) -> None:
        """Refuse tensors that the server would refuse.

        Raises:
            ColumnError: a list or a string is too long.
        """
        if not self.limits or not self._limited:
            return
        try:
            expect_within(self.limits, {name: request[name] for name in self._limited}, 0)
        except LimitError as error:
            raise ColumnError(
                "INVALID_INPUT",
                f"Expected values within the model's limits. Received: {error}. Shorten it, or export "
                f"the model with a larger one: ServingOptions({error.limit}=...).",
            ) from error

    def opened(self, tensors: dict[str, Array]) -> dict[str, Array]:
        """The output tensors by their columns' names."""
        if self.output_suffix:
            tensors = {name.removesuffix(self.output_suffix): t for name, t in tensors.items()}
        return unpack(tensors, self.packing) if self.packing else tensors

    def is_read_as(self, other: Contract) -> bool:
        """Whether requests, and the tensors of their answers, mean the same to another version."""
        return all(getattr(self, name) == getattr(other, name) for name in _MEANING)

    def no_rows(self) -> dict[str, Array]:
        """The output tensors for an empty table."""
        return {
            name: np.empty((0, self.widths.get(name, 1)), DTYPES[dtype].numpy)
            for column in self.outputs
            for name, dtype in column.tensors.items()
        }


@dataclass(frozen=True)
class Contracts:
    """The contracts of a model's versions that a client has met.

    Several servers behind one address have different versions while a new one is published to each
    of them, so that the contract of one server need not be that of the version that has answered.

    Attributes:
        current: the contract by which the next table is sent.
        other: the one before it, of another version.
    """

    current: Contract
    other: Contract | None = None

    def with_current(self, contract: Contract) -> Contracts:
        """The contracts after a server has told its own."""
        is_same = contract.version == self.current.version
        return Contracts(contract, self.other if is_same else self.current)

    def of(self, version: str) -> Contracts:
        """The contracts with that of a version as the current one, if it is known."""
        if self.other is not None and self.other.version == version:
            return Contracts(self.other, self.current)
        return self


def read_contract(config: Any) -> Contract:
    """Read a model's config: our exporter's parameters, else only names and dtypes.

    Args:
        config: a `ModelConfig` message.

    Raises:
        ClientError: parameters that cannot be read, or a dtype that is not in our table.
    """
    parameters = {name: value.string_value for name, value in config.parameters.items()}
    try:
        inputs, outputs = (
            _described(parameters[kind]) if kind in parameters else _columns(config.name, tensors)
            for kind, tensors in (("inputs", config.input), ("outputs", config.output))
        )
        labels = tuple(json.loads(parameters.get("label_columns", "[]")))
        packing = parse_packing(parameters.get("packing", "{}"))
        network_columns = {
            str(name): tuple(map(str, column)) if isinstance(column, list) else str(column)
            for name, column in json.loads(parameters.get("network_columns", "{}")).items()
        }
        limits = parse_limits(parameters.get("limits", "{}"))
        tolerance = float(parameters.get("tolerance", Contract.tolerance))
    except (ValueError, TypeError, AttributeError) as error:
        raise ClientError(
            "INVALID_CONFIG",
            f"Expected the parameters of {config.name!r} as our exporter writes them. "
            f"Received: {error}. Export the model again, or use `raw`.",
        ) from error
    skip = 0 if config.max_batch_size > 0 else 1
    widths = {
        tensor.name: max(dims[0], 1) for tensor in config.output if (dims := tensor.dims[skip:])
    }
    return Contract(
        tuple(inputs),
        tuple(outputs),
        labels,
        parameters.get("generation", ""),
        widths,
        parameters.get("preprocessing", ""),
        config.max_batch_size,
        parameters.get("output_suffix", ""),
        packing,
        limits,
        network_columns,
        _pinned(config, parameters.get("preprocessing", "")),
        str(max(config.version_policy.specific.versions, default="")),
        tolerance,
    )


def _pinned(config: Any, model: str) -> str:
    """The version of a step that an ensemble asks; "" for the newest."""
    versions = (s.model_version for s in config.ensemble_scheduling.step if s.model_name == model)
    return str(version) if (version := next(versions, 0)) > 0 else ""


def _described(text: str) -> list[WireColumn]:
    columns = parse_columns(text)
    for column in columns:
        dtype_of(column.dtype)  # Refuses what is not in the table.
    return columns


def _columns(model: str, tensors: Iterable[Any]) -> list[WireColumn]:
    """Columns by naming convention: `x__values` with `x__nnzs` is a list, others are scalars."""
    dtypes = {tensor.name: _dtype(model, tensor) for tensor in tensors}
    columns = []
    for name, dtype in dtypes.items():
        if is_list_values(name, dtypes):
            column = name.removesuffix(VALUES)
            columns.append(WireColumn(column, dtype, "flat", False, dtypes[column + NNZS]))
        elif not (name.endswith(NNZS) and name.removesuffix(NNZS) + VALUES in dtypes):
            columns.append(WireColumn(name, dtype))
    return columns


def _dtype(model: str, tensor: Any) -> str:
    name = model_config_pb2.DataType.Name(tensor.data_type)
    if name not in _DTYPES:
        raise ClientError(
            "INVALID_CONFIG",
            f"Expected dtypes among {', '.join(_DTYPES)} in {model!r}. "
            f"Received: {name} of {tensor.name!r}. Use `raw`.",
        )
    return _DTYPES[name]
