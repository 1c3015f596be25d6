"""Answers of the workflow and the network in this process, to compare written models with."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from exporter.columns.embeddings import id_counts
from exporter.columns.served_columns import ServedColumns
from exporter.errors import ExportError
from exporter.plan.golden_rows import GoldenRows, Tensors
from serving.prove.comparison import rows_with
from training.column_facts.id_counts import too_small
from training.network.nearest_items import NearestNetwork
from training.network.network import Network, tolerance_of
from workflow import Workflow, WorkflowError
from workflow.errors import in_a_line
from workflow.expressions.polars.series import to_column, to_series
from workflow.schema.column import Array, Column
from workflow.schema.dtypes import DTYPES
from workflow.wire.format import WireColumn, encode

# The relative change of every number that shows the network's sensitivity to rounding.
_NUDGE = 1e-6
# Products of larger numbers may overflow, depending on the order of a sum.
_LARGE, _LARGE_HALF = 1e18, 1e3
# Products of many such may overflow as well.
_UNUSUAL = 2.0**53


class _RefusedError(Exception):
    """The workflow or the network raises for some rows; the text says why."""


@dataclass(frozen=True)
class Offline:
    """The answers to golden rows in this process.

    Attributes:
        golden: the rows, without the refused ones.
        refused: the names of the refused rows, which real data may never contain.
        features: the columns that the network takes, with its dtypes.
        predictions: the outputs by name, (N, k).
        allowed: the allowed difference of a served output, by name, (N, k); infinite if the order
            of a sum decides between a number and an overflow.
        nan: mask of the rows in which TensorFlow meets a NaN, (N,). Its kernels differ in what
            they make of one: relu of it is NaN, or 0 where oneDNN joins it with a product, as it
            does by default on some processors.
        made_nan: mask of those of them for which the network itself makes it, of features that are usual numbers.
    """

    golden: GoldenRows
    refused: tuple[str, ...]
    features: pl.DataFrame
    predictions: Tensors
    allowed: Tensors
    nan: Array
    made_nan: Array


class OfflineAnswers:
    """The workflow and the network in this process.

    Args:
        workflow: a fitted workflow.
        features: the part of it that the network takes.
        network: the network.
    """

    def __init__(self, workflow: Workflow, features: ServedColumns, network: Network) -> None:
        self._workflow, self._features, self._network = workflow, features, network

    def of(self, golden: GoldenRows) -> Offline:
        """The answers to golden rows.

        Raises:
            ExportError: the workflow or the network cannot answer them.
        """
        self._expect_all_ids()
        refused: frozenset[str] = frozenset()
        try:
            features, predictions = self._answers(golden.frame)
        except _RefusedError as error:
            refused = self._refused(golden, str(error))
            golden = golden.without(refused)
            features, predictions = self._answers(golden.frame)
        allowed = self._allowed(features, predictions)
        given, made = (np.zeros(features.height, bool) for _ in range(2))
        if self._network.in_tensorflow:
            given = rows_with(features, np.isnan)
            usual = ~rows_with(features, lambda values: ~(np.abs(values) < _LARGE))
            made = usual & _with_nan(predictions)
        names = tuple(sorted(refused))
        return Offline(golden, names, features, predictions, allowed, given | made, made)

    def predict(self, features: pl.DataFrame) -> Tensors:
        """The network's answer to rows of features."""
        return self._network.answer(self._encoded(features))

    def vectors(self, golden: GoldenRows) -> Array:
        """The tower's vectors for golden rows that real data may contain, of a `NearestNetwork`."""
        network: Any = self._network
        features = self._transform(golden.without(golden.bold).frame)
        return network.vectors(self._encoded(features))

    def _transform(self, frame: pl.DataFrame) -> pl.DataFrame:
        have = frame.columns
        labels = [c.name for c in self._workflow.input_schema.columns if c.name not in have]
        full = frame.with_columns(pl.lit(None).alias(name) for name in labels)
        columns = self._features.outputs
        try:
            query = self._workflow.transform(full, engine="cpu").select(c.name for c in columns)
            table = query.collect()
        except (WorkflowError, pl.exceptions.PolarsError) as error:
            raise _RefusedError(in_a_line(error)) from error
        return pl.DataFrame(
            [to_series(_as_taken(c, to_column(table[c.name])), c.name) for c in columns]
        )

    def _encoded(self, features: pl.DataFrame) -> Tensors:
        tensors: Tensors = {}
        for column in self._features.outputs:
            tensors |= encode(column, to_column(features[column.name]))
        return tensors

    def _answers(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, Tensors]:
        """The features and the predictions of raw rows."""
        features = self._transform(frame)
        return features, self._attempt(features)

    def _attempt(self, features: pl.DataFrame) -> Tensors:
        try:
            return self.predict(features)
        except Exception as error:  # a user's layer may raise any type
            raise _RefusedError(in_a_line(error)) from error

    def _refused(self, golden: GoldenRows, reason: str) -> frozenset[str]:
        """The names of the bold rows for which the workflow or the network raises.

        Raises:
            ExportError: it raises for another row, or only for all together.
        """
        failing: dict[str, str] = {}
        for number, name in enumerate(golden.names):
            try:
                self._answers(golden.frame[number])
            except _RefusedError as error:
                failing[name] = str(error)
        not_bold = [name for name in failing if name not in golden.bold]
        if failing and not not_bold:
            return frozenset(failing)
        shown = f" {golden.row(not_bold[0])} ({not_bold[0]})" if not_bold else "s together"
        raise ExportError(
            f"Expected a workflow and a network that answer the golden row{shown}. "
            f"Received: {failing[not_bold[0]] if not_bold else reason} This happens in this process "
            "already, without a server. Let the network answer such rows, or let the workflow change them."
            f"{' Health checks ask for such a row.' if not_bold[:1] == ['zeros'] else ''}"
        )

    def _allowed(self, features: pl.DataFrame, predictions: Tensors) -> Tensors:
        """The allowed difference of each served output.

        Rounding grows with the numbers: the effect of changing inputs in their last digits shows
        the possible effect of another order of a sum.
        """
        nudged = self._nudged(self._encoded(features)) or predictions
        tolerance = tolerance_of(self._network)
        large = _LARGE_HALF if self._network.is_half else _LARGE
        # NaN is not an overflow.
        overflowing = rows_with(features, lambda values: np.abs(values) >= large)
        may_overflow = rows_with(features, lambda values: np.abs(values) >= _UNUSUAL)[:, np.newaxis]
        allowed = {}
        for name, answer in predictions.items():
            allowed[name] = limits = _moved(answer, nudged[name], tolerance)
            limits[overflowing] = np.inf
            if answer.dtype.kind == "f":
                limits[may_overflow & ~np.isfinite(answer)] = np.inf
        if isinstance(self._network, NearestNetwork):
            return self._network.with_ties(self._encoded(features), allowed, tolerance)
        return allowed

    def _nudged(self, tensors: Tensors) -> Tensors | None:
        """The answer to features that differ in their last digits; None if the network takes none such.

        A network may check that numbers are finite, or within their bounds.
        """
        for change in (1 + _NUDGE, 1 - _NUDGE):
            with np.errstate(over="ignore"):
                changed = {
                    name: tensor * tensor.dtype.type(change) if tensor.dtype.kind == "f" else tensor
                    for name, tensor in tensors.items()
                }
            with suppress(Exception):  # a user's layer may raise any type
                return self._network.answer(changed)
        return None

    def _expect_all_ids(self) -> None:
        """Run the network on the last id of each column, to find tables that are too small."""
        names = {column.name for column in self._features.outputs}
        lasts = {n: count - 1 for n, count in id_counts(self._features).items() if n in names}
        # All at once: with thousands of columns, a row for each would be thousands of rows as wide.
        if self._reason(self._ids(lasts)) is None or self._reason(self._ids({})) is not None:
            return
        for name, last in lasts.items():
            if (reason := self._reason(self._ids({name: last}))) is not None:
                raise ExportError(too_small(name, last + 1, reason))

    def _reason(self, features: pl.DataFrame) -> str | None:
        """The reason why the network has no answer; None if it has one."""
        try:
            self._attempt(features)
        except _RefusedError as error:
            return str(error)
        return None

    def _ids(self, ids: Mapping[str, int]) -> pl.DataFrame:
        """A row of features that are 0 except some ids; lists have one value."""
        return pl.DataFrame(
            [to_series(_single(c, ids.get(c.name, 0)), c.name) for c in self._features.outputs]
        )


def _single(column: WireColumn, value: int) -> Column:
    kind = DTYPES[column.dtype]
    values = np.array([""], object) if kind.kind == "string" else np.array([value], kind.numpy)
    return Column(values, None, np.ones(1, np.int64) if column.is_list else None)


def _as_taken(column: WireColumn, data: Column) -> Column:
    """A column with the network's dtype; values out of range become the nearest ones."""
    values, want = data.array, DTYPES[column.dtype]
    if values.dtype.kind in "iu" and want.is_integer:
        have, room = np.iinfo(values.dtype), np.iinfo(want.numpy)
        values = np.clip(values, max(have.min, room.min), min(have.max, room.max))
    if values.dtype != want.numpy:
        with np.errstate(over="ignore"):
            values = values.astype(want.numpy)
    return Column(values, data.valid, data.lengths)


def _with_nan(predictions: Tensors) -> Array:
    """Mask of the rows with a NaN in an answer."""
    floats = [each for each in predictions.values() if each.dtype.kind == "f"]
    return np.any([np.isnan(each).any(axis=1) for each in floats], axis=0)


def _moved(answer: Array, nudged: Array, tolerance: float) -> Array:
    """The tolerance of each value, greater if the value changes with its inputs' last digits."""
    if answer.dtype.kind != "f":
        return np.where(answer == nudged, 0.0, np.inf)
    here, there = answer.astype(np.float64), nudged.astype(np.float64)
    with np.errstate(invalid="ignore"):
        moved = np.nan_to_num(np.abs(there - here), nan=0.0, posinf=np.inf)
    return tolerance * np.maximum(1.0, np.nan_to_num(np.abs(here))) + 4 * moved
