"""Coverage of the parity suite, derived from its own code and rows, as the page docs/parity.md.

python tests/end_to_end/matrix.py > docs/parity.md
"""

import inspect
import sys
from collections.abc import Callable

import polars as pl
import test_runtimes
from pipelines import everything

from exporter import ServingOptions
from exporter.columns.served_columns import select_features
from exporter.plan.pipeline import Pipeline
from exporter.plan.runtime import RUNTIMES
from training.network.keras_network import KerasNetwork

INTRODUCTION = """\
# Coverage of the parity suite

`python tests/end_to_end/matrix.py` writes this page from the suite; a test compares the two.
`tests/end_to_end/test_runtimes.py` serves one pipeline with every runtime on one real server and compares
each answer with the offline one: integers and strings must be identical, predictions may differ by 1e-5, or
by 1e-5 of their size if that is above 1. Rows are sent alone, in batches of 7 and of {most}, the
largest, and by {most} clients at once.

"""
# What is hard about the values of a dtype, looked for in the rows themselves.
KINDS: dict[str, dict[str, Callable[[pl.Series], object]]] = {
    "whole": {
        "below 0": lambda s: (s < 0).any(),
        "the largest": lambda s: s.max() == 2**63 - 1,
        # Where null can be sent, the smallest is its code.
        "the smallest": lambda s: s.min() <= -(2**63) + 1,
    },
    "real": {
        "NaN": lambda s: s.is_nan().any(),
        "infinite": lambda s: s.is_infinite().any(),
        "below 0": lambda s: (s < 0).any(),
    },
    "text": {
        "empty": lambda s: "" in s,
        "not ASCII": lambda s: any(not text.isascii() for text in s.drop_nulls()),
    },
    "list": {
        "no list": lambda s: s.null_count(),
        "an empty list": lambda s: (s.list.len() == 0).any(),
        "300 values": lambda s: s.list.len().max() == 300,
    },
}


def kind_of(dtype):
    if isinstance(dtype, pl.List):
        return "list"
    return "text" if dtype == pl.String else "real" if dtype.is_float() else "whole"


def values_of(column, learnt):
    """The kinds of hard values in a column; `learnt` are the rows that the workflow has seen."""
    found = [kind for kind, holds in KINDS[kind_of(column.dtype)].items() if holds(column)]
    if kind_of(column.dtype) == "list":
        parts = (s.drop_nulls().list.explode(empty_as_null=False) for s in (column, learnt))
        return found + [f"in a list {kind}" for kind in values_of(*parts)]
    new = set(column.drop_nulls()) - set(learnt.drop_nulls())
    return found + ["null"] * bool(column.null_count()) + ["unseen"] * bool(new)


def columns():
    """Each raw column of the pipeline, with its dtype and what is in it."""
    pipeline = everything()
    labels = set(pipeline.labels)
    for name in [name for name in pipeline.rows.columns if name not in labels]:
        column = pipeline.rows[name]
        yield name, column.dtype, values_of(column, pipeline.learnt[name])


def layouts():
    """The layouts of each case in which columns go to the server, and from step to step."""
    made = everything()
    network = KerasNetwork(made.model, {})
    features = select_features(made.workflow, network.signature, made.labels, {"recent": 3})
    for case in test_runtimes.CASES:
        runtime, batch = case.split("-")
        options = ServingOptions(runtime=runtime, max_batch_size=int(batch))
        planned = Pipeline(case, 1, features, network.signature, options)
        sent = {column.layout for column in planned.client_columns}
        inside = set() if test_runtimes.is_fused(case) else planned.step_columns
        yield runtime, int(batch), sorted(sent), sorted({column.layout for column in inside})


def tests():
    """The tests that run for every case, and what each shows."""
    for name, function in inspect.getmembers(test_runtimes, inspect.isfunction):
        marks = getattr(function, "pytestmark", [])
        if any(mark.args[:2] == ("case", test_runtimes.CASES) for mark in marks):
            yield name


def page():
    """The whole page."""
    head = INTRODUCTION.format(most=test_runtimes.MAX)
    lines = [
        "| runtime | max_batch_size | layouts from the client | layouts between the steps |",
        "|---|---|---|---|",
    ]
    for runtime, batch, sent, inside in layouts():
        lines.append(
            f"| `{runtime}` | {batch} | {', '.join(sent)} | {', '.join(inside) or 'one model'} |"
        )
    if unserved := [f"`{name}`" for name, kind in RUNTIMES.items() if not kind.is_served]:
        lines += ["", f"Exported, and not served here: {', '.join(unserved)}."]
    lines += [
        "",
        "Each line is run through each of these tests:",
        "",
        *(f"- {name.removeprefix('test_').replace('_', ' ')}" for name in tests()),
        "",
        "| column | dtype | values |",
        "|---|---|---|",
        *(f"| {name} | {dtype} | {', '.join(found)} |" for name, dtype, found in columns()),
    ]
    return head + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
