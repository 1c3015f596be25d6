"""Facts about the columns that a graph reads, with which a server compares its requests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from workflow.data.column_facts import ColumnFacts
from workflow.graph.row_set import schema_of
from workflow.schema.training_data import Coverage, TrainedColumn, TrainingData

from .fit_graph import Learn
from .learn_operators import Learning, Tables, by_operator


class Coverages:
    """Records how well vocabularies cover the columns of the data, while operators learn.

    Args:
        learn: makes the operators' tables.

    Attributes:
        found: the coverage of each column that an operator looks up in a vocabulary.
    """

    def __init__(self, learn: Learn) -> None:
        self._learn = learn
        self.found: dict[str, Coverage] = {}

    def __call__(self, learning: Learning) -> Tables:
        """Make the tables of operators, as `learn` does."""
        tables = self._learn(learning)
        node_tables = by_operator(tables)
        for number, bound in learning.items():
            with bound.errors():
                coverages = bound.operator.coverages(node_tables[number], schema_of(bound.columns))
            for name, coverage in coverages.items():
                expression = bound.columns[name].expression
                if expression.verb == "source":
                    self.found.setdefault(expression.parameters["name"], coverage)
        return tables


def training_data(
    rows: int, found: Mapping[str, ColumnFacts], coverages: Mapping[str, Coverage]
) -> TrainingData:
    """Facts about the columns that a graph reads.

    Args:
        rows: their rows.
        found: facts about each column.
        coverages: the coverage of those with a vocabulary.

    Example:
        >>> ages = ColumnFacts(values=3, nulls=1, minimum=7, maximum=31)
        >>> training_data(3, {"age": ages}, {}).columns["age"].maximum
        31
    """
    columns = {}
    for name, facts in found.items():
        coverage = coverages.get(name)
        # The order of ids means nothing.
        ends = (None, None) if coverage else (facts.minimum, facts.maximum)
        least, greatest = map(_finite, ends)
        columns[name] = TrainedColumn(facts.values, facts.nulls, least, greatest, coverage)
    return TrainingData(rows, columns)


def _finite(value: Any) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return value + 0.0 if isinstance(value, float) else value  # 0.0 for -0.0, whichever came first
