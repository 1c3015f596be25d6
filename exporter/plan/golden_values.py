"""Test values for a column: known ones, unseen ones, and the limits of its dtype."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workflow.expressions.language.verbs import VERBS
from workflow.expressions.program.program import Program
from workflow.schema.column import Column, Strings
from workflow.schema.dtypes import DTYPES
from workflow.schema.training_data import TrainingData
from workflow.wire.format import WireColumn

# A column may be looked up in several vocabularies, each with a last value.
MOST_VOCABULARIES = 4
# Microseconds since 1970-01-01 of the beginning of 2020, of 1700 and of 2250.
_TIMES = (1_577_836_800_000_000, -8_520_336_000_000_000, 8_835_955_200_000_000)
_DAY = 86_400_000_000
_UNSEEN = " that no vocabulary holds"
# A negative number and a larger one, by kind of dtype.
_NUMBERS = {"int": (-7, 100), "uint": (3, 100), "float": (-2.5, 1234.5), "string": ("a", "b c")}
# Whole numbers of which float64 does not hold the last six bits, and the dtypes that do.
_WHOLE, _LONG = (2**59 + 63, 2**59 + 61, 2**59 + 58), ("int64", "uint64")
# Lookups after these verbs look up the client's own value.
_HANDING_ON = {name for name, verb in VERBS.items() if verb.hands_on or verb.converts}


@dataclass(frozen=True)
class GoldenValues:
    """Values of one column.

    Attributes:
        firsts: the first value of each vocabulary in which it is looked up, or a usual value.
        lasts: the last ones.
        zero: 0 or an empty text.
        unseen: a value outside all vocabularies.
        negative: a negative number.
        larger: another number.
        least: the smallest value that can be sent.
        most: the largest one, or a long text that is not ASCII.
        whole: whole numbers that float64 does not hold, if the network may take such, or the first values.
    """

    firsts: tuple[Any, ...]
    lasts: tuple[Any, ...]
    zero: Any
    unseen: Any
    negative: Any
    larger: Any
    least: Any
    most: Any
    whole: tuple[Any, ...]


def golden_values(
    column: WireColumn, known: Sequence[Column], text: str, is_whole: bool
) -> GoldenValues:
    """The values of a column.

    Args:
        column: the column in the form that a client sends.
        known: the vocabularies in which its values are looked up.
        text: a long text.
        is_whole: whether its values may reach the network as whole numbers of 64 bits.
    """
    code = column.null_code
    zero, one, least, most = _limits(column, code, text)
    is_whole &= column.dtype in _LONG and not column.time
    known = [vocabulary for keys in known if (vocabulary := _without(keys, code)).rows]
    ends = [(_key(keys, 0), _key(keys, -1)) for keys in known[:MOST_VOCABULARIES]]
    if not ends:
        # A column without lookups has no unseen values, and may be an id.
        kind = "time" if column.time else DTYPES[column.dtype].kind
        negative, larger = _NUMBERS.get(kind, (one, one))
        whole = _WHOLE if is_whole else (one,)
        return GoldenValues((one,), (one,), zero, one, negative, larger, least, most, whole)
    unseen: Any = text[:1] + _UNSEEN
    if column.dtype != "string":
        unseen = _unseen(known, _DAY if column.time else 1, least, most)
    firsts, lasts = zip(*ends, strict=True)
    whole = _WHOLE if is_whole else firsts
    return GoldenValues(firsts, lasts, zero, unseen, firsts[0], firsts[0], least, most, whole)


def _without(keys: Column, code: Any) -> Column:
    """The keys that can be sent: data may hold the value that stands for null in requests."""
    if isinstance(keys.values, Strings) or keys.array.dtype.kind not in "iu":
        return keys
    return Column(keys.array[keys.array != code])


def _limits(column: WireColumn, code: Any, text: str) -> tuple[Any, Any, Any, Any]:
    """Values of a dtype: zero, another usual one, the least and the greatest."""
    info = DTYPES[column.dtype]
    if column.time:
        return 0, *_TIMES
    if info.kind == "string":
        return "", "", "", text
    if info.kind == "bool":
        return False, True, False, True
    if info.kind == "float":
        limits = np.finfo(info.numpy)
        return 0.0, 0.3, float(limits.min), float(limits.max)
    whole = np.iinfo(info.numpy)
    return 0, 1, int(whole.min) + (whole.min == code), int(whole.max) - (whole.max == code)


def _unseen(tables: Sequence[Column], step: int, least: int, most: int) -> int:
    """An integer outside all vocabularies, or the least one if they hold every integer."""
    highest = max(int(keys.array.max()) for keys in tables)
    if highest <= most - step:
        return highest + step
    held = {int(key) for keys in tables for key in keys.array}
    return next((number for number in range(least, most, step) if number not in held), least)


def _key(keys: Column, place: int) -> Any:
    if isinstance(keys.values, Strings):
        ends = keys.values.offsets
        begin, end = (ends[0], ends[1]) if place == 0 else (ends[-2], ends[-1])
        return keys.values.data[begin:end].tobytes().decode()
    return keys.array[place].item() if keys.array.dtype != object else keys.array[place]


def vocabularies(program: Program) -> dict[str, list[Column]]:
    """The keys among which each input column's own values are looked up."""
    by_column: dict[str, list[Column]] = {}
    for step in program.steps:
        if step.verb != "lookup" or not step.parameters["keys"].rows:
            continue
        source = program.steps[step.operands[0]]
        while source.verb in _HANDING_ON:
            source = program.steps[source.operands[0]]
        keys = step.parameters["keys"]
        if source.verb == "source" and _fits(program, source.parameters["name"], keys):
            by_column.setdefault(source.parameters["name"], []).append(keys)
    return by_column


def whole_columns(program: Program) -> set[str]:
    """The input columns whose values may reach an output as whole numbers of 64 bits, but for ids of a lookup."""
    steps = program.steps
    on_the_way = {number for column, number in program.outputs if column.dtype in _LONG}
    for number in reversed(range(len(steps))):
        if number in on_the_way and steps[number].verb != "lookup":
            on_the_way.update(o for o in steps[number].operands if steps[o].type.dtype in _LONG)
    return {steps[n].parameters["name"] for n in on_the_way if steps[n].verb == "source"}


def warn_of_null_codes(
    columns: Iterable[WireColumn], program: Program, training: TrainingData
) -> None:
    """Warn of values of the training data that no request can hold, since they stand for null there."""
    by_column = vocabularies(program)
    for column in columns:
        code, tables = column.null_code, by_column.get(column.name, ())
        facts = training.columns.get(column.name)
        is_end = facts is not None and code in (facts.minimum, facts.maximum)
        if code is not None and (
            is_end or any(_without(keys, code).rows < keys.rows for keys in tables)
        ):
            warnings.warn(
                f"The workflow was fitted to the value {code} of {column.name!r} ({column.dtype}), which "
                "stands for null in requests: it cannot be sent. Convert the column to a wider type, or "
                "replace the value, before the workflow is fitted.",
                stacklevel=4,  # where the export was called
            )


def _fits(program: Program, name: str, keys: Column) -> bool:
    """Whether the column can hold the keys, which a cast before the lookup may have changed."""
    info = program.inputs[name].info
    if info.kind == "string":
        return isinstance(keys.values, Strings) or keys.array.dtype == object
    if not info.is_integer or isinstance(keys.values, Strings) or keys.array.dtype.kind not in "iu":
        return False
    limits = np.iinfo(info.numpy)
    return int(keys.array.min()) >= limits.min and int(keys.array.max()) <= limits.max
