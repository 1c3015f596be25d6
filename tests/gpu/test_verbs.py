"""Every verb over every dtype on the GPU: as the numpy interpreter, which serves, makes of it.

What the GPU cannot run is an error, never a fallback, and fails.
"""

from __future__ import annotations

import polars as pl
import pytest
from same_columns import assert_same
from verb_cases import verb_cases

from workflow.engine.engine import collect_on_gpu
from workflow.expressions.cudf.host_and_engine import host_and_engine
from workflow.expressions.language.verbs import VERBS
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.polars.series import to_column, to_series

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("verb", VERBS)
def test_verb_is_the_same_on_the_gpu(verb, device):
    collect = pl.LazyFrame.collect if device == "cpu" else collect_on_gpu
    # Polars on the CPU multiplies with the reciprocal of a constant.
    exact = VERBS[verb].exact and (verb, device) != ("divide", "cpu")
    wrong, cases = [], list(verb_cases([verb]))
    assert cases
    for case in cases:
        expected = NumpyInterpreter(case.program)(case.columns)["out"]
        frame = pl.LazyFrame([to_series(column, name) for name, column in case.columns.items()])
        try:
            made = to_column(host_and_engine(case.program)(frame, collect)["out"])
            assert_same(expected, made, exact=exact)
        except Exception as error:  # noqa: BLE001 - the other cases are wanted all the same
            wrong.append(f"{case.label}: {type(error).__name__}: {' '.join(str(error).split())}")
    assert not wrong, f"{len(wrong)} of {len(cases)} cases:\n" + "\n".join(wrong)
