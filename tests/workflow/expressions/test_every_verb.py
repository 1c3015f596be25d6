"""A verb is known everywhere: to each interpreter, as a method of a column, and in the guide."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from workflow.expressions.language.methods import Methods
from workflow.expressions.language.verbs import VERBS, of_every_verb
from workflow.schema.column import Column

ROOT = Path(__file__).parents[3]
INTERPRETERS = ["numpy.verbs", "polars.interpreter", "tensorflow.verbs", "onnx.verbs"]
# Run in a process of its own, with a verb that nobody knows, before any interpreter is imported.
WITH_ANOTHER = """
import importlib, sys, types
sys.modules["workflow"] = types.ModuleType("workflow")
sys.modules["workflow"].__path__ = [sys.argv[1]]
from workflow.expressions.language.verbs import VERBS
VERBS["erf"] = VERBS["tanh"]
for name in sys.argv[2:]:
    try:
        importlib.import_module(f"workflow.expressions.{name}")
    except NotImplementedError as error:
        print(error)
"""


def test_an_interpreter_without_a_verb_says_so_when_it_is_imported():
    command = [sys.executable, "-c", WITH_ANOTHER, str(ROOT / "workflow"), *INTERPRETERS]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    refusals = done.stdout.splitlines()
    assert len(refusals) == len(INTERPRETERS)
    # The others use parts of numpy's.
    assert refusals[0] == "The interpreter numpy has no entry for erf."


def test_a_table_with_a_verb_too_many_is_refused():
    with pytest.raises(NotImplementedError, match="The interpreter mine has erf, which is no verb"):
        of_every_verb("mine", {**VERBS, "erf": None})


def test_every_verb_is_everywhere():
    missing = []
    for name in INTERPRETERS:
        try:
            import_module(f"workflow.expressions.{name}")
        except NotImplementedError as error:
            missing.append(str(error))
    methods = "".join(
        (ROOT / "workflow" / "expressions" / "language" / f"{name}.py").read_text()
        for name in ("methods", "composed")
    )
    guide = (ROOT / "docs" / "guide" / "workflow.md").read_text()
    for name, verb in VERBS.items():
        # What has a table of columns is for operators that learn.
        if Column in verb.parameters.values():
            continue
        if f'"{name}"' not in methods and not isinstance(getattr(np, name, None), np.ufunc):
            missing.append(f"No method of a column makes the verb {name}.")
    for_operators = {"lookup", "gather", "bucketize"}
    missing += [
        f"docs/guide/workflow.md does not name c.{method}()."
        for method in vars(Methods).keys() - for_operators
        if not method.startswith("_") and f"`{method}`" not in guide and f"c.{method}(" not in guide
    ]
    assert not missing, "\n".join(missing)
