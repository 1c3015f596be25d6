"""Docstrings describe the arguments that there are, and their examples print what they show."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import keras
import pytest
import tensorflow as tf
from public_names import public_names

from training import models, optimizers
from workflow import Workflow, ops

ROOT = Path(__file__).parents[2]
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


# So many arguments need no section, where the sentence speaks of each.
FEW = 3


def documented():
    """Each public function, class and method whose arguments are ours, by its name."""
    for module in WITHOUT:
        if module == "triton_models":  # has no public names
            continue
        for path, name, value in public_names(importlib.import_module(module)):
            if not inspect.isclass(value) or is_ours(value.__init__):
                yield f"{path}.{name}", value
            if inspect.isclass(value):
                for method, function in inspect.getmembers(value, is_ours):
                    overrides = any(method in vars(base) for base in value.__mro__[1:])
                    tells = not overrides or "Args:" in (function.__doc__ or "")
                    if tells and not method.startswith("_"):
                        yield f"{path}.{name}.{method}", function


def is_ours(value):
    """Whether a function is of these packages, and not of Keras or of Python."""
    module = getattr(value, "__module__", None) if inspect.isroutine(value) else None
    return bool(module) and module.split(".")[0] in WITHOUT


def section(text, title):
    """The names that a section of a docstring describes, None without the section."""
    found = re.search(rf"^{title}:\n((?:    .*\n|\n)+)", f"{text}\n", re.MULTILINE)
    return found and re.findall(r"^    \*{0,2}(\w+):", found[1], re.MULTILINE)


def told(value, arguments):
    """The arguments that a docstring describes, in its order; None if there is no section."""
    text = inspect.getdoc(value) or ""
    names = section(text, "Args")
    if names is None and inspect.isclass(value) and (fields := section(text, "Attributes")):
        names = [field for field in fields if field in arguments]  # a dataclass may have others
    return names


def test_a_section_describes_each_argument_in_the_order_of_the_signature():
    wrong, every = [], list(documented())
    assert len(every) > 150
    for name, value in every:
        arguments = [each for each in inspect.signature(value).parameters if each != "self"]
        names = told(value, arguments)
        if names != arguments and not (names is None and len(arguments) <= FEW):
            file = Path(inspect.getsourcefile(inspect.unwrap(value))).relative_to(ROOT)
            have = "no section" if names is None else ", ".join(names)
            wrong.append(f"{file}: {name} has {', '.join(arguments)}. Received: {have}.")
    assert not wrong, "\n".join(["Expected these arguments in the section Args.", *wrong])
