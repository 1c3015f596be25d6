"""The proof that a server answers what the offline pipeline answers, row by row."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from serving.client import EnsembleClient
from serving.errors import ClientError
from workflow import Workflow
from workflow.data import as_lazy_frame
from workflow.expressions.column import Array, Column
from workflow.expressions.series import to_column, to_series
from workflow.wire import NNZS, VALUES, WireColumn, decode, encode


@dataclass(frozen=True)
class OutputParity:
    """How one column of the server's compares with the same column offline.

    Attributes:
        name: the column.
        kind: "feature" of the preprocessing step, or "prediction" of the ensemble.
        rows: the rows compared.
        mismatches: rows that differ by more than the tolerance; integers and strings must be
            identical.
        max_difference: the largest absolute difference of a number; 0 for strings.
        first_mismatch: the number of the first row that differs, or None.
    """

    name: str
    kind: str
    rows: int
    mismatches: int
    max_difference: float
    first_mismatch: int | None


@dataclass(frozen=True)
class ParityReport:
    """The result of a parity check; printing it shows a table, and a notebook shows it as HTML.

    Attributes:
        model: the ensemble's name.
        generation: the export that the server has.
        rows: the rows compared.
        tolerance: the largest difference of a float that counts as equal.
        outputs: one entry for each feature and each prediction.
    """

    model: str
    generation: str
    rows: int
    tolerance: float
    outputs: tuple[OutputParity, ...]

    @property
    def passed(self) -> bool:
        """Whether every row of every output is equal, and there was a row to compare."""
        return self.rows > 0 and all(output.mismatches == 0 for output in self.outputs)

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "FAILED"
        lines = [
            f"Parity {verdict}: {self.model}, {self.rows:,} rows, tolerance {self.tolerance:g}"
        ]
        width = max(len(output.name) for output in self.outputs)
        lines.append(
            f"  {'output':{width}}  {'kind':10}  {'mismatches':>10}  {'max difference':>14}"
        )
        lines += [
            f"  {o.name:{width}}  {o.kind:10}  {o.mismatches:>10,}  {o.max_difference:>14.2g}"
            + (f"  first at row {o.first_mismatch}" if o.first_mismatch is not None else "")
            for o in self.outputs
        ]
        return "\n".join(lines)

    def to_html(self) -> str:
        """The report as an HTML fragment, styles included."""
        color = "#2a9d4a" if self.passed else "#e5484d"
        verdict = "passed" if self.passed else "failed"
        head = "".join(
            f"<th>{title}</th>"
            for title in ("output", "kind", "rows", "mismatches", "max difference")
        )
        body = "".join(_html_row(output) for output in self.outputs)
        return (
            '<div style="font:14px/1.5 system-ui,sans-serif">'
            "<style>.parity td,.parity th{padding:4px 14px;text-align:right;border-bottom:1px solid #8885}"
            ".parity td:nth-child(-n+2),.parity th:nth-child(-n+2){text-align:left}</style>"
            f'<p><b style="color:{color}">Parity {verdict}</b>: {html.escape(self.model)}, {self.rows:,} rows, '
            f"tolerance {self.tolerance:g}, generation <code>{html.escape(self.generation)}</code></p>"
            f'<table class="parity" style="border-collapse:collapse"><tr>{head}</tr>{body}</table></div>'
        )

    def _repr_html_(self) -> str:
        return self.to_html()


def _html_row(output: OutputParity) -> str:
    style = ' style="background:#cf222e33"' if output.mismatches else ""
    cells = (
        output.name,
        output.kind,
        f"{output.rows:,}",
        f"{output.mismatches:,}",
        f"{output.max_difference:.2g}",
    )
    return f"<tr{style}>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


def check_parity(
    client: EnsembleClient,
    workflow: Workflow,
    model: Any,
    rows: Any,
    *,
    tolerance: float = 1e-5,
    batch_size: int = 1024,
) -> ParityReport:
    """Send rows to the server, and compare its answers with `workflow.transform` and `model`.

    The preprocessing step is asked on its own as well, so that every feature is compared, not
    only what the network makes of it.

    Args:
        client: connected to the ensemble.
        workflow: the workflow that was exported.
        model: the Keras model that was exported.
        rows: raw rows: a Polars or pandas frame, parquet paths or a dict; labels may be missing.
        tolerance: the largest absolute difference of a prediction that counts as equal.
        batch_size: the rows of one request.

    Raises:
        ClientError: there are no rows or a column is missing, `model` is none, or the server refused
            a request.

    Example:
        >>> print(check_parity(client, workflow, model, rows))  # doctest: +SKIP
        Parity passed: movielens, 10,000 rows, tolerance 1e-05
    """
    contract = client.contract
    frame = _raw_rows(rows, [column.name for column in contract.inputs])
    features = _features_of(model, workflow)
    offline = _transform(workflow, frame, features)
    batches = list(_slices(frame.height, min(batch_size, contract.max_batch_size or batch_size)))
    outputs = _compare_features(client, frame, offline, batches) if contract.preprocessing else []
    answered = [client.predict(frame[part].to_dict(as_series=False)) for part in batches]
    names = [column.name for column in contract.outputs]
    expected = [
        _call(model, {n: to_column(offline[n][part]) for n in features}, names) for part in batches
    ]
    for name in names:
        here, there = (
            np.concatenate([batch[name] for batch in side]) for side in (expected, answered)
        )
        outputs.append(_compare(name, "prediction", here, there, tolerance))
    return ParityReport(
        client.model_name, contract.generation, frame.height, tolerance, tuple(outputs)
    )


def _features_of(model: Any, workflow: Workflow) -> list[str]:
    """The workflow's columns that a network takes."""
    if not hasattr(model, "predict_on_batch"):
        raise ClientError(
            "PARITY",
            f"Expected a Keras model. Received: {model!r}. Load a file with keras.saving.load_model.",
        )
    made = workflow.output_schema
    names = [tensor.name for tensor in model.inputs]
    return [
        *dict.fromkeys(n if n in made else n.removesuffix(VALUES).removesuffix(NNZS) for n in names)
    ]


def _compare_features(
    client: EnsembleClient, frame: pl.DataFrame, offline: pl.DataFrame, batches: list[slice]
) -> list[OutputParity]:
    """The columns of the step that makes them, which is asked by itself."""
    name = client.contract.preprocessing
    step = client.for_model(name)
    served = pl.concat([step.predict(frame[part]) for part in batches])
    columns = step.contract.outputs
    return [_compare_column(c, offline[c.name], served[c.name]) for c in columns]


def _raw_rows(rows: Any, names: list[str]) -> pl.DataFrame:
    lazy = as_lazy_frame(rows)
    have = lazy.collect_schema().names()
    if missing := [name for name in names if name not in have]:
        raise ClientError(
            "PARITY",
            f"Expected the columns {', '.join(names)}. Received: rows without {', '.join(missing)}.",
        )
    frame = lazy.select(names).collect()
    if not frame.height:
        raise ClientError("PARITY", "Expected rows to compare. Received: none.")
    return frame


def _slices(rows: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, rows, size))


def _transform(workflow: Workflow, frame: pl.DataFrame, features: list[str]) -> pl.DataFrame:
    """The offline features. A label's column, which only training has, is null here."""
    missing = [c for c in workflow.input_schema.columns if c.name not in frame.columns]
    full = frame.with_columns(pl.lit(None).alias(column.name) for column in missing)
    return workflow.transform(full).select(features).collect()


def _call(model: Any, columns: Mapping[str, Column], names: list[str]) -> dict[str, Array]:
    """The network's answer, by the names that it has on the server."""
    tensors: dict[str, Array] = {}
    widths = {tensor.name: tensor.shape[1] for tensor in model.inputs}
    for name, column in columns.items():
        if column.lengths is not None and name in widths:
            dtype = column.array.dtype.name
            tensors |= encode(WireColumn(name, dtype, "fixed", width=widths[name]), column)
        elif column.lengths is None:
            tensors[name] = column.array.reshape(-1, 1)
        else:
            tensors[name + VALUES] = column.array.reshape(-1, 1)
            tensors[name + NNZS] = column.lengths.reshape(-1, 1)
    # A sequential model that was never called has no `input`; then it takes one tensor.
    structure = getattr(model, "input", model.inputs[0])
    answer = model.predict_on_batch(_fill(structure, tensors))
    if isinstance(answer, Mapping):
        return {name: np.asarray(answer[name]) for name in names}
    answers = answer if isinstance(answer, list | tuple) else [answer]
    return {name: np.asarray(array) for name, array in zip(names, answers, strict=True)}


def _fill(structure: Any, tensors: Mapping[str, Array]) -> Any:
    """The model's input structure with arrays in the place of its inputs."""
    if isinstance(structure, Mapping):
        return {key: _fill(value, tensors) for key, value in structure.items()}
    if isinstance(structure, list | tuple):
        return type(structure)(_fill(value, tensors) for value in structure)
    return tensors[structure.name]


def _compare_column(column: WireColumn, here: pl.Series, there: pl.Series) -> OutputParity:
    """Features: lists are compared row by row, each with its length."""
    name = column.name
    if column.layout == "fixed":
        here = _of_width(here, column)
    if not isinstance(here.dtype, pl.List):
        exact = 0.0 if not here.dtype.is_float() else 1e-6
        return _compare(name, "feature", here.to_numpy(), there.to_numpy(), exact)
    a, b = to_column(here), to_column(there)
    if a.lengths is None or b.lengths is None or not np.array_equal(a.lengths, b.lengths):
        wrong = np.flatnonzero(here.list.len().to_numpy() != there.list.len().to_numpy())
        return OutputParity(name, "feature", len(here), len(wrong), float("inf"), int(wrong[0]))
    rows = np.repeat(np.arange(len(here)), a.lengths)
    flat = _compare(name, "feature", a.array.astype(column.dtype), b.array, 0.0)
    first = None if flat.first_mismatch is None else int(rows[flat.first_mismatch])
    return OutputParity(name, "feature", len(here), flat.mismatches, flat.max_difference, first)


def _of_width(lists: pl.Series, column: WireColumn) -> pl.Series:
    """Lists cut or filled up to the width in which they are served."""
    wire = replace(column, dtype=to_column(lists).array.dtype.name)
    tensors = encode(wire, to_column(lists))
    return to_series(decode(wire, tensors), column.name)


def _compare(name: str, kind: str, here: Array, there: Array, tolerance: float) -> OutputParity:
    """Two arrays; NaN equals NaN."""
    if here.shape != there.shape:
        raise ClientError(
            "PARITY", f"Expected {name} of the shape {here.shape}. Received: {there.shape}."
        )
    if here.dtype == object:
        differs, largest = np.asarray(here != there), 0.0
    else:
        a, b = here.astype(np.float64), there.astype(np.float64)
        with np.errstate(invalid="ignore"):
            gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        gap = np.where(np.isnan(gap), np.inf, gap)
        differs, largest = gap > tolerance, float(gap.max(initial=0.0))
        if here.dtype.kind in "iu":
            differs = here != there
    wrong = np.flatnonzero(differs.reshape(len(differs), -1).any(axis=1))
    return OutputParity(
        name, kind, len(here), len(wrong), largest, int(wrong[0]) if len(wrong) else None
    )
