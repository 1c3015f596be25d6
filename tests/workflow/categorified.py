"""Workflows of Categorify alone, and the ids that they give."""

from __future__ import annotations

from workflow import Workflow, ops

AUTHORS = {"author": ["A", "E", "B", "C"], "reader": ["B", "B", "A", "D"]}
MAIL = {"author": ["A", "E", "B", "C"], "reader": [["B", "C"], [], ["A", "D"], ["A"]]}


def fitted(data, left=None, **settings) -> Workflow:
    return Workflow((left or list(data)) >> ops.Categorify(**settings)).fit(data)


def encoded(workflow: Workflow, data) -> dict[str, list]:
    return workflow.transform(data).collect().to_dict(as_series=False)


def ids(data, left=None, **settings) -> dict[str, list]:
    return encoded(fitted(data, left, **settings), data)


def properties(workflow: Workflow, name: str) -> dict:
    return dict(workflow.output_schema[name].properties)
