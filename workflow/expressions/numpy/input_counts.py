"""Counts of a program's inputs: nulls, values outside vocabularies and ranges, elements of lists.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from ...schema.column import Array, Column
from ...schema.dtypes import DTYPES
from ...schema.training_data import TrainingData
from ..program.program import Program
from .joint_steps import lanes_of

NULLS, VALUES, UNKNOWN, OUTSIDE = "nulls", "values", "unknown", "outside"
ROWS = "rows"
# To count a few rows takes as long as to count this many.
COST_OF_A_RESULT = 256
# Results wait until there are this many, since numpy's calls take most of the time of a few rows.
_MOST_ROWS, _MOST_RESULTS = 2_048, 256

# The ids of padding, null and unknown values precede those of the vocabulary.
_FIRST_ID = 3

# The count of each kind for each column; the number of all rows is under the name "".
Counts = dict[tuple[str, str], int]


@dataclass(frozen=True)
class _Watched:
    """An input column.

    Attributes:
        name: the column.
        source: the number of its step.
        lookup: the number of the step that looks its values up in a vocabulary, or None.
        lane: the slot and the lane of that step's result where a group computes it.
        missing: the result of that step for values outside the vocabulary.
        ends: the least and the greatest value in the training, if there is a range.
    """

    name: str
    source: int
    lookup: int | None
    lane: tuple[int, int]
    missing: int
    ends: tuple[Array, Array] | None


class InputCounts:
    """A counter of a program's inputs. Thread-safe.

    Args:
        program: the program.
        training: facts about the data that it was fitted to.
        dtypes: the dtypes in which values were sent; by default those of the program.
        budget: the rows that are counted between two calls of `take`, where a result counts as
            COST_OF_A_RESULT rows at least; further results are left out. Without it all are counted.

    Example:
        >>> from workflow import Workflow, ops
        >>> from workflow.expressions.numpy.interpreter import NumpyInterpreter
        >>> workflow = Workflow(["age"] >> ops.Normalize()).fit({"age": [1.0, 2.0]})
        >>> counts = InputCounts(workflow.program, workflow.training_data)
        >>> age = Column(np.array([1.5, 7.0, np.nan]), np.array([True, True, False]))
        >>> counts.add(NumpyInterpreter(workflow.program).results({"age": age}))
        >>> counts.take()
        {('rows', ''): 3, ('nulls', 'age'): 1, ('values', 'age'): 2, ('outside', 'age'): 1}
    """

    def __init__(
        self,
        program: Program,
        training: TrainingData,
        dtypes: Mapping[str, str] | None = None,
        budget: float = math.inf,
    ) -> None:
        lookups, lanes = vocabulary_lookups(program, training), lanes_of(program)
        self._columns = [
            _watched(program, number, training, lookups.get(number), lanes, dtypes or {})
            for number, step in enumerate(program.steps)
            if step.verb == "source"
        ]
        self._budget = self._left = budget
        self._lock = Lock()
        self._waiting: list[Sequence[Column]] = []
        self._rows = 0
        self._counts: Counts = {}

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self._columns]

    def kinds(self) -> Counts:
        """All counts that there can be, each as 0."""
        kinds: Counts = {(ROWS, ""): 0}
        for column in self._columns:
            kinds |= {(NULLS, column.name): 0, (VALUES, column.name): 0}
            if column.lookup is not None:
                kinds[UNKNOWN, column.name] = 0
            elif column.ends is not None:
                kinds[OUTSIDE, column.name] = 0
        return kinds

    def add(self, results: Sequence[Column]) -> None:
        """Count the rows of a request, or of several that were computed together.

        Args:
            results: the results of all steps of the program, which are kept for a while.
        """
        if not self._columns or self._left <= 0:
            return
        rows = results[self._columns[0].source].rows
        self._left -= max(rows, COST_OF_A_RESULT)
        with self._lock:
            self._waiting.append(results)
            self._rows += rows
            if self._rows < _MOST_ROWS and len(self._waiting) < _MOST_RESULTS:
                return
        self._count()

    def take(self) -> Counts:
        """The counts since the last call."""
        self._count()
        self._left = self._budget
        with self._lock:
            counts, self._counts = self._counts, {}
        return counts

    def _count(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            rows, self._rows = self._rows, 0
        if not waiting:
            return
        counts = {(ROWS, ""): rows}
        for column in self._columns:
            for kind, count in _counted(column, waiting).items():
                counts[kind, column.name] = count
        with self._lock:
            for key, count in counts.items():
                if count:
                    self._counts[key] = self._counts.get(key, 0) + count


def vocabulary_lookups(program: Program, training: TrainingData) -> dict[int, int]:
    """The lookup of each source in the vocabulary that was learnt from it."""
    origins: dict[int, int] = {}
    found: dict[int, int] = {}
    for number, step in enumerate(program.steps):
        if step.verb == "source":
            origins[number] = number
        elif step.verb == "cast" and step.operands[0] in origins:
            origins[number] = origins[step.operands[0]]
        elif step.verb == "lookup" and step.operands[0] in origins:
            source = origins[step.operands[0]]
            facts = training.columns.get(program.steps[source].parameters["name"])
            known = facts.coverage.size if facts and facts.coverage else None
            # Other lookups give positions in the tables of joins and of groups.
            is_vocabulary = step.parameters["first"] >= _FIRST_ID
            if is_vocabulary and step.parameters["keys"].rows == known:
                found.setdefault(source, number)
    return found


def _watched(
    program: Program,
    number: int,
    training: TrainingData,
    lookup: int | None,
    lanes: Mapping[int, tuple[int, int]],
    dtypes: Mapping[str, str],
) -> _Watched:
    step = program.steps[number]
    name, ends = step.parameters["name"], None
    facts = training.columns.get(name)
    if facts and (facts.minimum, facts.maximum) != (None, None):
        # An end that is not finite is None.
        least = -np.inf if facts.minimum is None else facts.minimum
        greatest = np.inf if facts.maximum is None else facts.maximum
        # Rounded as the values are, if the client sends a narrower dtype than the training had.
        dtype = DTYPES[dtypes.get(name, step.type.dtype)].numpy
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            least, greatest = (min(max(end, limits.min), limits.max) for end in (least, greatest))
        with np.errstate(over="ignore"):
            ends = np.array(least, dtype), np.array(greatest, dtype)
    missing = 0 if lookup is None else program.steps[lookup].parameters["missing"]
    lane = (0, 0) if lookup is None else lanes.get(lookup, (0, 0))
    return _Watched(name, number, lookup, lane, missing, ends)


def _counted(column: _Watched, waiting: Sequence[Sequence[Column]]) -> Mapping[str, int]:
    """The counts of a column over the results of several computations."""
    own = [results[column.source] for results in waiting]
    valid = _valid(own)
    total = sum(len(one.values) for one in own)
    nulls = 0 if valid is None else total - int(np.count_nonzero(valid))
    counts = {NULLS: nulls, VALUES: total - nulls}
    if column.lookup is not None:
        found = _joined([_found(results, column.lookup, *column.lane) for results in waiting])
        counts[UNKNOWN] = _number(found == column.missing, valid)
    elif column.ends is not None:
        values, (least, greatest) = _joined(own), column.ends
        # A null among floats is NaN, which is in no order with any number.
        known = None if values.dtype.kind == "f" else valid
        counts[OUTSIDE] = _number(values < least, known) + _number(values > greatest, known)
    return counts


def _found(results: Sequence[Column | None], lookup: int, slot: int, lane: int) -> Column:
    """The result of a lookup, which may be read by a group alone."""
    own, group = results[lookup], results[slot]
    if own is None and group is not None:
        own = Column(group.array[lane])
    if own is None:
        raise TypeError("The results lack a lookup.")
    return own


def _valid(columns: Sequence[Column]) -> Array | None:
    """Mask of the values that are not null; None if all are."""
    masks = [column.valid for column in columns]
    if len(masks) == 1:
        return masks[0]
    if all(mask is None for mask in masks):
        return None
    filled = [np.ones(len(c.values), bool) if c.valid is None else c.valid for c in columns]
    valid: Array = np.concatenate(filled)
    return valid


def _joined(columns: Sequence[Column]) -> Array:
    arrays: list[Any] = [column.values for column in columns]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _number(mask: Array, valid: Array | None) -> int:
    return int(np.count_nonzero(mask if valid is None else mask & valid))
