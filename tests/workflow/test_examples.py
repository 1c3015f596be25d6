"""The examples in the docstrings are run, so that they stay true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import workflow

MODULES = sorted(module.name for module in pkgutil.walk_packages(workflow.__path__, "workflow."))


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_are_true(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where an example saves something
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert result.failed == 0


def test_examples_are_found():
    found = doctest.DocTestFinder(exclude_empty=True).find(
        importlib.import_module("workflow.workflow")
    )
    assert any("Workflow" in test.name and test.examples for test in found)
