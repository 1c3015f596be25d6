"""Operators at work by their own examples, and the rows that are hard for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
import pytest
from interpreters import REFERENCE, SAME, Equality, assert_same, equality_of
from run_tensorflow import any_subnormal
from strategies import SPECIAL

from workflow import Workflow
from workflow.expressions.polars.series import column_schema, to_column
from workflow.graph.operator_node import Bound, OperatorNode
from workflow.graph.resolution import Resolution
from workflow.operator.operator import OPERATORS, Example, Operator
from workflow.schema.column import Column


@dataclass(frozen=True, eq=False)
class Case:
    """One example of an operator; what several tests need of it is made once."""

    name: str
    example: Example

    @property
    def operator(self) -> Operator:
        return self.example.operator

    @cached_property
    def fitted(self) -> pl.DataFrame:
        """The rows that the example fits to."""
        return pl.DataFrame(dict(self.example.columns))

    @cached_property
    def workflow(self) -> Workflow:
        """The example, fitted; tests do not change it."""
        return self.fit(self.fitted)

    def fit(self, rows: pl.DataFrame) -> Workflow:
        """The example, fitted to other rows."""
        return self.unfitted().fit(rows)

    def unfitted(self) -> Workflow:
        """The example as a workflow."""
        return Workflow((self.example.left or self.fitted.columns) >> self.operator)

    @cached_property
    def hard_rows(self) -> pl.DataFrame:
        """The example's rows, its unseen ones, and the extremes of every dtype."""
        parts = [self.fitted]
        if self.example.unseen:
            parts.append(pl.DataFrame(dict(self.example.unseen), schema=self.fitted.schema))
        return pl.concat([*parts, _extremes(self.fitted.schema, 16), nulls(self.fitted.schema, 2)])

    @cached_property
    def transformed(self) -> pl.DataFrame:
        """The hard rows after `transform`."""
        return self.workflow.transform(self.hard_rows).collect()

    @cached_property
    def inputs(self) -> dict[str, Column]:
        """The hard rows as they are sent to a server."""
        return as_columns(self.hard_rows.select(self.workflow.program.inputs.names))

    @cached_property
    def without_subnormals(self) -> dict[str, Column]:
        """The inputs without the rows in which a subnormal number comes up: TensorFlow makes 0 of it."""
        if not any_subnormal(self.workflow.program, self.inputs):
            return self.inputs
        sent = self.hard_rows.select(self.workflow.program.inputs.names)
        rows = [sent[row] for row in range(sent.height)]
        kept = [row for row in rows if not any_subnormal(self.workflow.program, as_columns(row))]
        assert len(kept) > len(rows) / 2
        return as_columns(pl.concat(kept))

    @cached_property
    def served(self) -> dict[str, Column]:
        """The hard rows after the numpy interpreter."""
        return REFERENCE.run(self.workflow.program, self.inputs)

    @cached_property
    def equality(self) -> Equality:
        """The equality that the answers of interpreters need."""
        return equality_of(self.workflow.program)

    def bound(self) -> Bound:
        """The operator with its groups, its dependencies and its input columns."""
        nodes = self.workflow.nodes
        resolution = Resolution(self.workflow.input_schema)
        for number, node in enumerate(nodes[:-1]):
            resolution.resolve(node, self.workflow.states.get(number, {}))
        last = nodes[-1]
        assert isinstance(last, OperatorNode)
        return last.bind(resolution.inputs(last))


CASES = [
    Case(f"{name}-{number}", example)
    for name, operator in sorted(OPERATORS.items())
    for number, example in enumerate(operator.examples())
]


def cases(holds: Callable[[Operator], bool] = lambda _: True) -> pytest.MarkDecorator:
    """A test for each example of the operators for which something holds."""
    chosen = [pytest.param(case, id=case.name) for case in CASES if holds(case.operator)]
    return pytest.mark.parametrize("case", chosen)


def row_by_row(operator: Operator) -> bool:
    """Whether what an operator makes can be served."""
    return operator.row_by_row


def nulls(schema: pl.Schema, rows: int) -> pl.DataFrame:
    """Rows without a value."""
    return pl.DataFrame({name: [None] * rows for name in schema}, schema=schema)


def _extremes(schema: pl.Schema, rows: int) -> pl.DataFrame:
    """Rows that hold the extremes of each dtype, a list in pairs of them."""
    columns = {}
    for name, dtype in schema.items():
        column = column_schema(name, dtype)
        special = itertools.cycle(SPECIAL[column.dtype])
        values = [
            [next(special), next(special)] if column.is_list else next(special) for _ in range(rows)
        ]
        columns[name] = pl.Series(values, dtype=dtype)
    return pl.DataFrame(columns)


def cut(rows: pl.DataFrame, parts: int) -> list[pl.DataFrame]:
    """Parts of odd sizes, some of them empty."""
    ends = sorted(np.random.default_rng(parts).integers(0, rows.height + 1, parts - 1).tolist())
    bounds = [0, *ends, rows.height]
    return [rows[start:end] for start, end in itertools.pairwise(bounds)]


def as_columns(frame: pl.DataFrame) -> dict[str, Column]:
    """A frame as interpreters take it."""
    return {series.name: to_column(series) for series in frame}


def assert_same_columns(
    expected: dict[str, Column], received: dict[str, Column], equality: Equality = SAME
) -> None:
    """The same columns in the same order."""
    assert list(expected) == list(received)
    for name, column in expected.items():
        assert_same(column, received[name], what=name, equality=equality)
