"""The examples in the docstrings of the client and of the exporter are run."""

import doctest
import importlib
import pkgutil

import pytest

import exporter
import serving

MODULES = sorted(
    module.name
    for package in (serving, exporter)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_are_true(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert result.failed == 0


def test_examples_are_found():
    module = importlib.import_module("serving.connection.tensors")
    assert any(test.examples for test in doctest.DocTestFinder().find(module))
