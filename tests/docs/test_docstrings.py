"""The examples in docstrings run, and print what they show."""

import doctest
import importlib
import pkgutil

import keras
import pytest
import tensorflow as tf

from training import models, optimizers
from workflow import Workflow, ops

# For each package, its modules without examples that could run here.
WITHOUT = {
    "workflow": (),
    "loader": ("frameworks.jax_loader", "frameworks.torch_loader"),  # without JAX and PyTorch
    # Outlines: they train for a while, or write where the reader wants to.
    "training": ("saved_model", "keras_signature", "training_run", "report"),
    "serving": (),
    "exporter": (),
    "triton_models": (  # inside a server
        "backends.model_backend",
        "backends.onnxruntime.model",
        "backends.tensorflow.model",
        "nearest_items.model",
        "preprocess.model",
    ),
}
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules(package):
    found = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    without = {f"{package}.{name}" for name in WITHOUT[package]}
    return [module.name for module in found if module.name not in without]


def names(module):
    """The names that examples of a module use without importing them."""
    if module == "training.models.mlp":
        workflow = Workflow(["userId"] >> ops.Categorify()).fit({"userId": [7, 9]})
        return {"models": models, "workflow": workflow}
    if module.startswith("training."):
        return {"tf": tf, "keras": keras, "models": models, "optimizers": optimizers}
    return {}


@pytest.mark.parametrize("name", [name for package in WITHOUT for name in modules(package)])
def test_examples_print_what_they_show(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where an example saves something
    module = importlib.import_module(name)
    assert not doctest.testmod(module, optionflags=FLAGS, extraglobs=names(name)).failed


@pytest.mark.parametrize("name", ["workflow.workflow", "serving.connection.tensors"])
def test_examples_are_found(name):
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name))
    assert any(test.examples for test in found)
