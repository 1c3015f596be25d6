"""The cost of tables of many columns and of graphs of many nodes: processor seconds and exponents.

    python -m benchmarks.scaling_width                          # 20 to 2,000 columns
    python -m benchmarks.scaling_width --only nodes --sizes 20 500 1000 2000

"columns" is one node for every kind of column, "nodes" one for each column; half of the columns are
ids, and the others numbers. The rows are few, so that the columns are what costs. Each case runs in a
process of its own, "columns" for about three minutes on an idle core and "nodes" for one.

The exponent is the slope of log cost over log columns, after the cost of the fewest columns, which is
the start-up, is taken off. An exponent above 1.15 makes the command fail (above 1.3 for `models.mlp`,
of which Keras' part grows with the square), where it does so in each of three measurements. What grows by
less than `NOISE` from the fewest columns to the most is flagged in no case: a shared machine varies by
as much.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.measure import in_child, least, options, show
from benchmarks.scaling_costs import MOST_EXPONENT, exponent_of
from workflow import Workflow, ops
from workflow.graph.node import ConcatNode, Node

SIZES = (20, 250, 500, 1_000, 2_000)
ROWS = 200
# Seconds of the processor.
NOISE = 0.25
# A cost is the least of so many, or of as many as take so many seconds: the first run may fill caches,
# so only what takes longer than all of these is measured once.
REPEATS, MOST_REPEATED = 7, 5.0
# Where it grows too fast, a case is measured so many times.
MOST_MEASURED = 3
# Keras flattens all inputs of a functional model for each of them, a quarter of the cost at 2,000.
MOST_EXPONENTS = {"models.mlp": 1.3}

Actions = Iterator[tuple[str, Callable[[], Any]]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the cases, print a table, and fail where a cost grows faster than its columns."""
    parser = options(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="columns")
    parser.add_argument("--only", nargs="+", choices=CASES, default=[*CASES], help="cases")
    parsed = parser.parse_args(arguments)
    sizes = sorted(parsed.sizes)
    flags: list[str] = []
    show("Processor time by columns", _measured(parsed.only, sizes, flags))
    if flags:
        sys.exit(f"{len(flags)} costs grow faster than they should:\n" + "\n".join(flags))


def _measured(
    cases: Sequence[str], sizes: Sequence[int], flags: list[str]
) -> Iterator[dict[str, str]]:
    for case in cases:
        for action, costs in _costs(case, sizes).items():
            exponent = exponent_of(sizes, costs, NOISE)
            shown = "-" if exponent is None else f"{exponent:.2f}"
            is_flagged = is_too_high(action, exponent)
            if is_flagged:
                flags.append(f"{case}, {action}: exponent {shown}")
            yield {
                "": f"{case}, {action}",
                **{f"{size:,}": f"{cost:.2f} s" for size, cost in zip(sizes, costs, strict=True)},
                "exponent": shown,
                "flags": "**!**" * is_flagged,
            }


def is_too_high(action: str, exponent: float | None) -> bool:
    """Whether a cost grows faster than it should.

    Example:
        >>> is_too_high("fit", 1.2), is_too_high("models.mlp", 1.2), is_too_high("fit", None)
        (True, False, False)
    """
    return (exponent or 0) > MOST_EXPONENTS.get(action, MOST_EXPONENT)


def _costs(case: str, sizes: Sequence[int]) -> dict[str, list[float]]:
    """The costs of each action; where one grows too fast, the least of some measurements."""
    costs = _in_a_process(case, sizes)
    for _ in range(MOST_MEASURED - 1):
        exponents = {action: exponent_of(sizes, own, NOISE) for action, own in costs.items()}
        if not any(is_too_high(*each) for each in exponents.items()):
            break
        again = _in_a_process(case, sizes)
        costs = {
            action: [min(pair) for pair in zip(own, again[action], strict=True)]
            for action, own in costs.items()
        }
    return costs


def _in_a_process(case: str, sizes: Sequence[int]) -> dict[str, list[float]]:
    """The costs of each action of a case, one for each size."""
    # Columns of 2,000 are trained on no GPU, and the threads would tell of the machine.
    environment = {"POLARS_MAX_THREADS": "2", "CUDA_VISIBLE_DEVICES": ""}
    return in_child(measure_here, case, sizes, **environment)


def measure_here(case: str, sizes: Sequence[int]) -> dict[str, list[float]]:
    """Measure a case in this process."""
    _ = _costs_of(case, sizes[0])  # what is imported and made once
    costs: dict[str, list[float]] = {}
    for size in sizes:
        for action, cost in _costs_of(case, size):
            costs.setdefault(action, []).append(cost)
    return costs


def _costs_of(case: str, size: int) -> list[tuple[str, float]]:
    with tempfile.TemporaryDirectory() as scratch:
        return [
            (action, least(work, repeats=REPEATS, seconds=MOST_REPEATED)[0])
            for action, work in CASES[case](size, Path(scratch))
        ]


def _rows(columns: int) -> tuple[pl.DataFrame, list[str], list[str]]:
    random = np.random.default_rng(0)
    ids, numbers = ([f"{kind}{n}" for n in range(columns // 2)] for kind in ("id", "number"))
    made: dict[str, Any] = {name: random.integers(0, 20, ROWS) for name in ids}
    made |= {name: random.random(ROWS) for name in numbers}
    return pl.DataFrame(made | {"label": random.integers(0, 2, ROWS)}), ids, numbers


def _columns(columns: int, scratch: Path) -> Actions:
    rows, ids, numbers = _rows(columns)
    graph = (ids >> ops.Categorify()) + (numbers >> ops.FillMissing() >> ops.Normalize())
    workflow = Workflow(graph + "label")
    yield from _workflow_actions(workflow, rows, scratch)
    yield from _network_actions(workflow, ids, numbers, scratch)


def _nodes(columns: int, scratch: Path) -> Actions:
    rows, ids, numbers = _rows(columns)

    def graph() -> Node:
        parts = [[name] >> ops.Categorify() for name in ids]
        parts += [[name] >> ops.FillMissing() >> ops.Normalize() for name in numbers]
        return ConcatNode(*parts)

    yield "graph", lambda: Workflow(graph())
    yield from _workflow_actions(Workflow(graph()), rows, scratch)


def _workflow_actions(workflow: Workflow, rows: pl.DataFrame, scratch: Path) -> Actions:
    file = scratch / "rows.parquet"
    rows.write_parquet(file)
    yield "fit", lambda: workflow.fit(rows)
    yield "fit from files", lambda: workflow.fit(file)
    yield "transform", lambda: workflow.transform(rows).collect()

    def written() -> None:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            workflow.transform_to_parquet(file, folder)

    yield "transform to files", written
    yield "save", lambda: workflow.save(scratch / "workflow")
    yield "load", lambda: Workflow.load(scratch / "workflow").output_schema


def _network_actions(
    workflow: Workflow, ids: Sequence[str], numbers: Sequence[str], scratch: Path
) -> Actions:
    from exporter import export_tensorflow_ensemble  # noqa: PLC0415 - TensorFlow takes long
    from loader import KerasSequenceLoader  # noqa: PLC0415
    from training import models  # noqa: PLC0415

    workflow.transform_to_parquet(scratch / "rows.parquet", scratch / "train")

    def batches() -> KerasSequenceLoader:
        return KerasSequenceLoader(
            scratch / "train",
            batch_size=64,
            cat_names=ids,
            cont_names=numbers,
            label_names=["label"],
        )

    yield "open a loader", batches
    loader = batches()
    yield "an epoch", lambda: [None for _ in loader]

    made: list[Any] = []

    def network() -> None:
        made[:] = [models.mlp(workflow.output_schema.without(["label"]), hidden=(8,))]

    yield "models.mlp", network

    def exported() -> None:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            export_tensorflow_ensemble(made[0], workflow, "wide", folder, ["label"])

    yield "export", exported


CASES: dict[str, Callable[[int, Path], Actions]] = {"columns": _columns, "nodes": _nodes}

if __name__ == "__main__":
    main()
