"""A user's functions are called by fit: what they read from elsewhere may change afterwards."""

from __future__ import annotations

import pytest

from workflow import Subgraph, Workflow, ops

DATA = {"price": [5.0, 50.0, 500.0], "other": [1, 2, 3]}


class Limits:
    """Numbers that the functions read, as they would a variable of a notebook or of a loop."""

    value = 10.0


FILTERED = ["price"] >> ops.Filter(lambda df: df["price"] > Limits.value)
CASES = {
    "LambdaOp": (
        ["price"] >> ops.LambdaOp(lambda c: c.clip(0, Limits.value)),
        ("price", [5.0, 10.0, 10.0]),
        ("price", [5.0, 50.0, 100.0]),
    ),
    "before an operator that learns": (
        ["price"] >> ops.LambdaOp(lambda c: c.clip(0, Limits.value)) >> ops.NormalizeMinMax(),
        ("price", [0.0, 1.0, 1.0]),
        ("price", pytest.approx([0.0, 45 / 95, 1.0])),
    ),
    "Filter": (FILTERED, ("price", [50.0, 500.0]), ("price", [500.0])),
    "Bucketize": (
        ["price"] >> ops.Bucketize(lambda _: [Limits.value]),
        ("price", [0, 1, 1]),
        ("price", [0, 0, 1]),
    ),
    "Rename": (
        ["price"] >> ops.Rename(lambda name: f"{name}{Limits.value:.0f}"),
        ("price10", DATA["price"]),
        ("price100", DATA["price"]),
    ),
}


def made(workflow, name):
    return workflow.transform(DATA).collect()[name].to_list()


@pytest.mark.parametrize("case", CASES)
def test_what_a_function_reads_is_of_the_fit(case, tmp_path, monkeypatch):
    node, (name, expected), (next_name, next_expected) = CASES[case]
    further = [] if node is FILTERED else ["other"]
    monkeypatch.setattr(Limits, "value", 10.0)
    workflow = Workflow(Subgraph("part", node) + further).fit(DATA)
    monkeypatch.setattr(Limits, "value", 100.0)
    workflow.save(tmp_path / "saved")
    parts = [workflow, workflow.get_subworkflow("part"), Workflow.load(tmp_path / "saved")]
    parts += map(workflow.remove_inputs, further)
    for part in parts:
        assert made(part, name) == expected
    assert made(Workflow(node).fit(DATA), next_name) == next_expected
