"""Every verb and every operator on the GPU against the CPU: a line for each that differs.

    python -m benchmarks.gpu_workflow_check [--seconds 60] [--only verbs operators]

A verb is compared with the numpy interpreter, which serves; an operator with what the CPU learns
and makes of the same parquet: of its examples, and of the extremes of their dtypes. Integers and
strings are to be identical and floats too, but for 1 ulp of float32 after a verb that is not exact.
What the GPU cannot run is an error, never a fallback, and counts as a failure.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from benchmarks.verb_cases import VerbCase, hard_values, verb_cases
from workflow import Workflow
from workflow.engine.engine import collect_on_gpu
from workflow.expressions.cudf.host_and_engine import host_and_engine
from workflow.expressions.language.verbs import VERBS
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.polars.series import column_schema, to_column, to_series
from workflow.operator.frame_operator import OutOfFoldOperator
from workflow.operator.operator import OPERATORS, Example
from workflow.schema.column import Column

ULP = 2.0**-23
SHOWN = 60


class Check(NamedTuple):
    """Something to try.

    Attributes:
        kind: what sort of thing it is.
        label: which it is.
        run: says what differs; empty when nothing does.
    """

    kind: str
    label: str
    run: Callable[[], str]


def verb_checks() -> Iterator[Check]:
    """Each verb on the GPU against the numpy interpreter."""
    for case in verb_cases():
        yield Check("verbs", case.label, partial(verb_difference, case))


def verb_difference(case: VerbCase) -> str:
    """What the GPU makes other than numpy."""
    expected = NumpyInterpreter(case.program)(case.columns)["out"]
    frame = pl.DataFrame([to_series(column, name) for name, column in case.columns.items()])
    made = host_and_engine(case.program)(frame.lazy(), collect_on_gpu)
    exact = VERBS[case.verb].exact
    return difference(expected, to_column(made["out"]), exact=exact)


def operator_checks() -> Iterator[Check]:
    """Each operator's examples: fitted, transformed to parquet, and the states compared."""
    for name, operator in sorted(OPERATORS.items()):
        for number, example in enumerate(operator.examples()):
            label = f"{name}-{number}"
            yield Check("fit", label, partial(fit_difference, example))
            for kind, rows in (("transform", rows_of(example, extremes=True)), ("empty", None)):
                yield Check(kind, label, partial(transform_difference, example, rows))
            if isinstance(operator, type) and issubclass(operator, OutOfFoldOperator):
                yield Check("fit_transform", label, partial(fit_transform_difference, example))


def fit_difference(example: Example) -> str:
    """What the GPU learns other than the CPU."""
    with tempfile.TemporaryDirectory() as folder:
        files = write_rows(rows_of(example, extremes=False), Path(folder))
        states = [make(example).fit(files, engine=engine).states for engine in ("cpu", "gpu")]
    return states_difference(*states)


def transform_difference(example: Example, rows: pl.DataFrame | None) -> str:
    """What the GPU makes other than the CPU of some rows, both with what the CPU has learnt."""
    with tempfile.TemporaryDirectory() as folder:
        fitted = rows_of(example, extremes=False)
        workflow = make(example).fit(fitted)
        files = write_rows(fitted.clear() if rows is None else rows, Path(folder))
        made = [
            pl.read_parquet(workflow.transform_to_parquet(files, Path(folder, e), engine=e))
            for e in ("cpu", "gpu")
        ]
    return frames_difference(*made)


def fit_transform_difference(example: Example) -> str:
    """What the GPU makes of the rows that it learns from."""
    with tempfile.TemporaryDirectory() as folder:
        files = write_rows(rows_of(example, extremes=False), Path(folder))
        made = [
            pl.read_parquet(
                make(example).fit_transform_to_parquet(files, Path(folder, e), engine=e)
            )
            for e in ("cpu", "gpu")
        ]
    return frames_difference(*made)


def make(example: Example) -> Workflow:
    """An example as a workflow."""
    return Workflow((example.left or list(example.columns)) >> example.operator)


def rows_of(example: Example, *, extremes: bool) -> pl.DataFrame:
    """An example's rows, three times over, and those that are hard."""
    frame = pl.DataFrame(dict(example.columns))
    if not extremes:
        return pl.concat([frame] * 3)
    parts = [frame, hard_rows(frame.schema), frame.clear(), frame]
    if example.unseen:
        parts.append(pl.DataFrame(dict(example.unseen), schema=frame.schema))
    return pl.concat(parts)


def hard_rows(schema: pl.Schema, rows: int = 20) -> pl.DataFrame:
    """Rows of the values of each dtype at which libraries differ; lists of them, null and empty."""
    columns = {}
    for name, dtype in schema.items():
        column = column_schema(name, dtype)
        values = hard_values(column.dtype)
        if column.is_time:
            values = [0, -1, 86_400_000_000, 951_782_400_000_000, None]
        if column.is_list:
            values = [None, [], values, [None], *([v] for v in values)]
        picked = [values[row % len(values)] for row in range(rows)]
        columns[name] = pl.Series(picked, dtype=_of_integers(dtype, time=column.is_time)).cast(
            dtype
        )
    return pl.DataFrame(columns)


def _of_integers(dtype: pl.DataType, *, time: bool) -> pl.DataType:
    if not time:
        return dtype
    return pl.List(pl.Datetime("us")) if isinstance(dtype, pl.List) else pl.Datetime("us")


def write_rows(frame: pl.DataFrame, folder: Path) -> list[Path]:
    """The rows as two files of several row groups."""
    middle = frame.height // 2
    files = [folder / "0.parquet", folder / "1.parquet"]
    for file, part in zip(files, (frame[:middle], frame[middle:]), strict=True):
        part.write_parquet(file, row_group_size=5)
    return files


def states_difference(expected: dict[int, Any], received: dict[int, Any]) -> str:
    """What differs of two workflows' states; sums of floats may differ in their last bits."""
    for number, state in expected.items():
        if state.keys() != received[number].keys():
            return f"{list(state)} and {list(received[number])}"
        for name, column in state.items():
            if found := difference(column, received[number][name], exact=False, close=1e-8):
                return f"{name}: {found}"
    return ""


def frames_difference(expected: pl.DataFrame, received: pl.DataFrame) -> str:
    """What differs of two frames."""
    if expected.schema != received.schema:
        return f"{expected.schema} and {received.schema}"
    for one, other in zip(expected, received, strict=True):
        if found := difference(to_column(one), to_column(other), exact=False):
            return f"{one.name}: {found}"
    return ""


def difference(expected: Column, received: Column, *, exact: bool, close: float = ULP) -> str:
    """What differs of two columns: a row with what was expected and received, or empty."""
    if expected.rows != received.rows or expected.is_list != received.is_list:
        return f"{expected.rows} rows and {received.rows}"
    lengths = [[] if c.lengths is None else c.lengths.tolist() for c in (expected, received)]
    if lengths[0] != lengths[1]:
        return f"lengths {lengths[0][:8]} and {lengths[1][:8]}"
    valid, received_valid = (
        np.ones(len(c.array), bool) if c.valid is None else c.valid for c in (expected, received)
    )
    if not np.array_equal(valid, received_valid):
        return f"nulls {_first(valid, received_valid, valid == received_valid)}"
    a, b = expected.array[valid], received.array[valid]
    if a.dtype != b.dtype:
        return f"{a.dtype} and {b.dtype}"
    same = _same(a, b, 0.0 if exact else close)
    return "" if same.all() else f"values {_first(a, b, same)}"


def _same(a: Any, b: Any, close: float) -> Any:
    if a.dtype.kind != "f":
        return a == b
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not close:
        return same
    with np.errstate(all="ignore"):
        wide = [x.astype(np.float64) for x in (a, b)]
        scale = np.maximum(np.abs(wide[0]), np.abs(wide[1]))
        near = np.abs(wide[0] - wide[1]) <= np.maximum(scale * close, 1e-45)
    return same | (near & np.isfinite(a) & np.isfinite(b))


def _first(a: Any, b: Any, same: Any) -> str:
    rows = np.flatnonzero(~same)
    return f"in {len(rows)} of {len(a)}, the first {rows[0]}: {a[rows[0]]!r} and {b[rows[0]]!r}"


def main() -> None:
    """Run the checks, and print what failed and how many of how many."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", nargs="+", choices=["operators", "verbs"])
    options = parser.parse_args()
    start = time.perf_counter()
    makers = {"operators": operator_checks, "verbs": verb_checks}
    done, failed = Counter[str](), Counter[str]()
    for maker in options.only or makers:
        for check in makers[maker]():
            if time.perf_counter() - start > options.seconds:
                print(f"{check.kind}: not all tried, the seconds are over", flush=True)
                break
            done[check.kind] += 1
            try:
                found = check.run()
            except Exception as error:  # noqa: BLE001 - each failure is a line of the report
                found = f"{type(error).__name__}: {' '.join(str(error).split())[-240:]}"
            if found:
                failed[check.kind] += 1
                if failed[check.kind] <= SHOWN:
                    print(f"{check.kind}: {check.label}: {found}", flush=True)
    for kind, count in done.items():
        print(f"{kind}: {count} tried, {failed[kind]} failed")
    print(f"{time.perf_counter() - start:.1f} s")
    sys.exit(1 if failed.total() else 0)


if __name__ == "__main__":
    main()
