"""Every verb over every dtype on the GPU: as the numpy interpreter, which serves, makes of it.

What the GPU cannot run is an error, never a fallback, and fails.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import polars as pl
import pytest
from gpu_on_the_host import GpuOnTheHost
from same_columns import assert_same
from verb_cases import verb_cases

from workflow.engine.engine import rows_on_gpu
from workflow.expressions.cudf.host_and_engine import host_and_engine
from workflow.expressions.language.verbs import VERBS
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.polars.series import to_column, to_series
from workflow.schema.column import Column

pytestmark = pytest.mark.timeout(120)


def as_they_are(column):
    return column


def nulls(column):
    """One row, null, or a list of nulls."""
    values = column.array[:1]
    return Column(values, np.zeros(1, bool), np.ones(1, np.int64) if column.is_list else None)


def no_row(column):
    return Column(column.array[:0], None, np.zeros(0, np.int64) if column.is_list else None)


@pytest.mark.parametrize("rows", [as_they_are, nulls, no_row])
@pytest.mark.parametrize("verb", VERBS)
def test_verb_is_the_same_on_the_gpu(verb, rows, device):
    place = nullcontext(GpuOnTheHost()) if device == "cpu" else rows_on_gpu()
    # Polars on the CPU multiplies with the reciprocal of a constant.
    exact = VERBS[verb].exact and (verb, device) != ("divide", "cpu")
    wrong, cases = [], list(verb_cases([verb]))
    assert cases
    with place as gpu:
        for case in cases:
            if rows is no_row and verb == "gather" and case.program.output_schema["out"].is_list:
                continue  # cuDF makes no empty column of lists
            columns = {name: rows(column) for name, column in case.columns.items()}
            expected = NumpyInterpreter(case.program)(columns)["out"]
            frame = pl.LazyFrame([to_series(column, name) for name, column in columns.items()])
            try:
                made = host_and_engine(case.program)(frame, gpu).to_host()
                assert_same(expected, to_column(made["out"]), exact=exact)
            except Exception as error:  # noqa: BLE001 - the other cases are wanted all the same
                text = " ".join(str(error).split())
                wrong.append(f"{case.label}: {type(error).__name__}: {text}")
    assert not wrong, f"{len(wrong)} of {len(cases)} cases:\n" + "\n".join(wrong)
