"""Random workflows on the GPU: it learns and makes what the CPU does, and refuses the same values."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, reject
from random_workflows import random_workflows, written
from same_columns import assert_same
from searched import searched

from workflow import WorkflowError
from workflow.expressions.polars.series import to_column

# Sums of floats may differ in their last bits, and so may what large numbers leave of small ones.
CLOSE, BESIDE = 1e-5, 1e-12

pytestmark = pytest.mark.timeout(600)


@searched(100)
@given(made=random_workflows())
def test_the_gpu_makes_what_the_cpu_does(made, engine, tmp_path_factory):
    folder = tmp_path_factory.mktemp("random")
    written(made.learnt, folder / "learnt")
    written(made.rows, folder / "rows")
    expected, received = (
        outcome(made, folder, e, f"out{n}") for n, e in enumerate(("cpu", engine))
    )
    if isinstance(received, str) and "cuDF cannot run" in received:
        reject()  # lists of floats as ids
    if isinstance(expected, str) or isinstance(received, str):
        assert expected == received
    else:
        assert expected.schema == received.schema
        for one, other in zip(expected, received, strict=True):
            assert_same(to_column(one), to_column(other), close=CLOSE, beside=BESIDE)


def outcome(made, folder, engine, out):
    """The rows that a workflow fitted by an engine makes on it, or its refusal."""
    try:
        workflow = made.fit(folder / "learnt", engine=engine)
        files = workflow.transform_to_parquet(folder / "rows", folder / out, engine=engine)
    except WorkflowError as error:
        return str(error)
    return pl.read_parquet(files)
