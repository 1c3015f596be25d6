"""The range of a step is as narrow as its verb and its operands say.

That no value is outside of it is part of the conformance of verbs.
"""

from __future__ import annotations

import math

import pytest

from workflow.expressions.language.limits import LONGEST_LIST
from workflow.expressions.language.tree import Expression, source, where
from workflow.expressions.language.types import Type
from workflow.expressions.program.program import build
from workflow.expressions.program.ranges import ranges
from workflow.schema.schema import ColumnSchema, Schema

A = source("a", Type("int64"))
LIST = source("l", Type("int64", is_list=True))
WIDE = (-(2**63), 2**63 - 1)
KNOWN: dict[str, tuple[Expression, tuple[int, int] | None]] = {
    "anything": (A, WIDE),
    "modulo": (A % 24, (0, 23)),
    "negative modulo": (A % -7, (-6, 0)),
    "minutes": (A % 24 * 60 + A % 60, (0, 1439)),
    "difference": (A % 24 - A % 7, (-6, 23)),
    "clip": (A.clip(-5, 100.5), (-5, 101)),
    "one end": (A.clip(0), (0, 2**63 - 1)),
    "no end": ((A % 3).clip(-math.inf, math.inf), (0, 2)),
    "beyond every number": ((A % 3).clip(math.inf), WIDE),
    "below every number": ((A % 3).clip(None, -math.inf), WIDE),
    "flags": ((A > 3).cast("int64") * 7, (0, 7)),
    "where": (where(A > 0, 9, A % 3), (0, 9)),
    "filling": ((A % 3).fill_null(-1), (-1, 2)),
    "saturating": (A.cast("int8").cast("int64"), (-128, 127)),
    "a cast of a fraction": ((A / 3).cast("int16"), (-(2**15), 2**15 - 1)),
    "bucket": (A.hash_bucket(1000), (0, 999)),
    "wraps round": (A.cast("int8") * A.cast("int8"), (-128, 127)),
    "may overflow": (A * 2, WIDE),
    "length": (LIST.list_length(), (0, LONGEST_LIST)),
    "padded": ((LIST % 5).list_pad(3, -1), (-1, 4)),
    "fraction": (A / 3, None),
}


@pytest.mark.parametrize(("expression", "wanted"), KNOWN.values(), ids=KNOWN)
def test_ranges_are_as_narrow_as_the_steps_say(expression, wanted):
    data = [ColumnSchema("a", "int64"), ColumnSchema("l", "int64", is_list=True)]
    out = ColumnSchema("out", expression.type.dtype, expression.type.is_list)
    program = build([(out, expression)], Schema(data))
    assert ranges(program)[program.outputs[0][1]] == wanted
