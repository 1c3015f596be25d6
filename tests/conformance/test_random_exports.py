"""Random workflows before a network: their export proves them, or refuses them by a rule that the guide has."""

from __future__ import annotations

import pytest
from hypothesis import given, reject
from random_workflows import random_workflows
from searched import searched

from exporter import ExportError, ServingOptions, export_ensemble
from training import TrainingError, models
from workflow import WorkflowError

RULES = (
    "can be null, and a network takes no null",
    "Expected no hashes of strings, and none of TensorFlow's fingerprints",
)


@pytest.mark.filterwarnings("ignore:The workflow was fitted to the value")  # that stands for null
@pytest.mark.parametrize("runtime", ["onnx", "fused_onnx"])
@searched(12)
@given(made=random_workflows(row_by_row=True, names_of=["a", "b", "count", "d_1"]))
def test_what_was_learnt_is_served(runtime, made, tmp_path_factory):
    try:
        workflow = made.fit(made.learnt)
        network = models.mlp(workflow.output_schema, hidden=(2,))
    except (WorkflowError, TrainingError):
        reject()
    folder = tmp_path_factory.mktemp("random") / "models"
    try:
        export_ensemble(
            network, workflow, "made", folder, labels=[], serving=ServingOptions(runtime=runtime)
        )
    except ExportError as error:
        if not any(rule in str(error) for rule in RULES):
            raise
