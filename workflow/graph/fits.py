"""Digests of what was learnt on the way to a column, by which a network is tied to its features."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from workflow.expressions.program.program import Program, Step
from workflow.operator.frame_operator import WindowOperator
from workflow.schema.column import Array, Column, Strings
from workflow.schema.schema import Schema
from workflow.schema.tags import FIT, fits_of

from .row_set import RowSet

_BYTES = 16
# Bits of a float32 that are left out: sums in another order differ in the last ones.
_ROUNDED = 8
_MOST_THREADS = 16


def with_fits(program: Program, rows: RowSet) -> Program:
    """The same program, whose output columns have the digests of their fits.

    A digest is of the tables and numbers of the steps to a column, and of the digests of the data's
    columns that it is computed from, if another workflow has made these. A column without any has no
    digest. Which steps there are does not count, nor do further outputs, so that a part of a workflow
    has the digests of the whole, and a later version of the library computes the same steps in another
    way. Floats count with five digits: those of sums on another engine or cluster are equal.

    Args:
        program: the steps of a fitted workflow.
        rows: the rows of its outputs. Where these are other rows than those of the data, as behind
            Groupby, their columns have the digests of the columns that they were made of.

    Returns:
        a program whose `output_schema` has the property `fit_digest`, 32 hexadecimal digits.

    Example:
        >>> from workflow import Workflow, ops
        >>> fits = [
        ...     Workflow(["user"] >> ops.Categorify()).fit({"user": users}).output_schema["user"]
        ...     for users in ([7, 9], [9, 7, 7], [7, 8])
        ... ]
        >>> [fit.properties["fit_digest"] == fits[0].properties["fit_digest"] for fit in fits]
        [True, True, False]
    """
    return _with_fits(program, fits_of_sources(rows))


def fits_of_sources(rows: RowSet) -> dict[str, str]:
    """The digests of the columns that expressions over some rows read, of those that have one."""
    fits: dict[str, str] = {}
    for each in rows.generations():
        columns = each.columns
        if origin := each.origin:
            columns = origin.operator.frame_schema(_with_fits(origin.program(), fits).output_schema)
        fits = _fits(columns)
        for extension in each.extensions:
            if isinstance(extension.operator, WindowOperator):
                read = _with_fits(each.program(extension.columns.values()), fits).output_schema
                made = _fits(extension.operator.frame_schema(read))
                fits |= {extension.keys[name]: fit for name, fit in made.items()}
    return fits


def _fits(columns: Schema) -> dict[str, str]:
    return {name: fit for name, fit in fits_of(columns.columns).items() if fit}


def _with_fits(program: Program, sources: Mapping[str, str]) -> Program:
    _digest_tables(program)
    outputs = []
    for column, number in program.outputs:
        properties = {name: fact for name, fact in column.properties.items() if name != FIT}
        if digest := _fit(program, number, sources):
            properties[FIT] = digest
        outputs.append((column.with_(properties=properties), number))
    return Program(program.inputs, program.steps, tuple(outputs))


def _digest_tables(program: Program) -> None:
    """Derive the digests of all tables, in threads."""
    values = (value for step in program.steps for value in step.parameters.values())
    tables = {id(value): value for value in values if isinstance(value, Column)}
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        list(pool.map(_of_table, tables.values()))


def _of_table(table: Column) -> bytes:
    return table.derived(FIT, _Digest(table))


def _fit(program: Program, number: int, sources: Mapping[str, str]) -> str:
    contents = {found for step in program.ancestry([number]) for found in _contents(step)}
    earlier = [sources.get(name, "") for name in program.sources_of_steps([number])]
    if not contents and len(earlier) == 1:
        return earlier[0]
    found = sorted([*contents, *(fit.encode() for fit in earlier if any(earlier))])
    return _digest(*found).hex() if found else ""


def _contents(step: Step) -> Iterator[bytes]:
    if step.verb.startswith("fingerprint"):  # gives other ids than our hash, of the same numbers
        yield step.verb.encode()
    for name, value in step.parameters.items():
        if isinstance(value, Column):
            yield _of_table(value)
        elif isinstance(value, int | float) or (step.verb, name) == ("constant", "value"):
            yield _of_array(np.array([value]))


class _Digest:
    """The digest of a table, which is derived from it once."""

    def __init__(self, column: Column) -> None:
        self._parts = column.values, column.valid, column.lengths

    def __call__(self) -> bytes:
        values, valid, lengths = self._parts
        parts = [values.data, values.offsets] if isinstance(values, Strings) else [values]
        if valid is not None and not valid.all():
            if not isinstance(values, Strings):  # any value may be where there is none
                parts = [np.where(valid, values, np.zeros((), values.dtype))]
            parts.append(valid)
        if lengths is not None:
            parts.append(lengths)
        return _digest(*map(_of_array, parts))


def _of_array(values: Array) -> bytes:
    kind = values.dtype.kind
    if kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            values = values.astype("<f4") + np.float32(0)  # -0.0 is 0.0
            values = np.where(np.isnan(values), np.float32(np.nan), values)
            values = values.view("<i4") >> _ROUNDED
    elif kind in "UO":
        values = np.frombuffer("\0".join(map(str, values)).encode(), np.uint8)
    return _digest(values.dtype.str.encode(), np.ascontiguousarray(values).view(np.uint8))


def _digest(*parts: Any) -> bytes:
    hasher = hashlib.sha256()  # which processors compute in hardware
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()[:_BYTES]
