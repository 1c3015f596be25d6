"""The examples in docstrings run, and give what they say."""

import doctest
import importlib
import pkgutil

import keras
import pytest
import tensorflow as tf

import training
from training import models, optimizers
from workflow import Workflow, ops

# Their examples are outlines: they train for a while, or write where the reader wants to.
OUTLINES = {
    "training.saved_model",
    "training.keras_signature",
    "training.training_run",
    "training.report",
}
MODULES = [
    module.name
    for module in pkgutil.walk_packages(training.__path__, "training.")
    if module.name not in OUTLINES
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    result = doctest.testmod(
        module,
        optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS,
        extraglobs={"tf": tf, "keras": keras, "models": models, "optimizers": optimizers}
        | ({"workflow": fitted()} if name.endswith(".mlp") else {}),
    )
    assert not result.failed


def fitted():
    workflow = Workflow(["userId"] >> ops.Categorify())
    return workflow.fit({"userId": [7, 9]})
