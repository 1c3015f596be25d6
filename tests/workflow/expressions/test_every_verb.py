"""A verb is known everywhere: to each interpreter, as a method of a column, in the guide, to the tests.

Nothing of `workflow` is imported here: an interpreter that lacks a verb cannot be, and would hide where
else the verb is missing.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
INTERPRETERS = {
    "numpy": "numpy.verbs",
    "polars": "polars.interpreter",
    "tensorflow": "tensorflow.verbs",
    "onnx": "onnx.verbs",
    "cudf": "cudf.exceptions",
}
# Run in a process of its own, whose interpreters note what they lack where they would refuse it.
NOTED = """
import importlib, json, sys, types
from dataclasses import replace
package = sys.modules["workflow"] = types.ModuleType("workflow")
package.__path__ = [sys.argv[1]]
from workflow.expressions.language import verbs
from workflow.expressions.language.methods import Methods
for name in sys.argv[3:]:
    verbs.VERBS[name] = replace(verbs.VERBS["tanh"], name=name, reexpressed_on=("cudf",))
lacks = {}
refuse = verbs.of_every_verb
def note(interpreter, entries, engine=None):
    try:
        return refuse(interpreter, entries, engine)
    except NotImplementedError as error:
        lacks[module] = str(error)
        return {**dict.fromkeys(verbs.VERBS), **entries}
verbs.of_every_verb = note
for module in json.loads(sys.argv[2]):
    importlib.import_module("workflow.expressions." + module)
rows = {n: {"arity": v.arity, "parameters": list(v.parameters), "tables": v.tables,
            "examples": [list(e) for e in v.examples]}
        for n, v in verbs.VERBS.items()}
print(json.dumps({"verbs": rows, "methods": list(vars(Methods)), "lacks": lacks}))
"""
# Tables that these tests make, by the parameter's name.
MADE_IN = "tests/conformance/verb_cases.py, benchmarks/scaling_cases.py and TABLES of this file"
TABLES = {"keys", "table", "boundaries"}


def missing(*more: str) -> list[str]:
    """Each place where a verb is missing.

    Args:
        more: verbs that nobody knows.
    """
    command = [sys.executable, "-c", NOTED, str(ROOT / "workflow")]
    command += [json.dumps(list(INTERPRETERS.values())), *more]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    texts = (ROOT / "workflow" / "expressions" / "language").glob("*.py")
    methods = "".join(f.read_text() for f in texts if f.stem in ("methods", "composed"))
    guide = (ROOT / "docs" / "guide" / "workflow.md").read_text()
    places = [
        f"workflow/expressions/{module.replace('.', '/')}.py: {lacks}"
        for module, lacks in found["lacks"].items()
    ]
    for name, row in found["verbs"].items():
        if any(set(row["parameters"]) - set(row["tables"]) != set(e) for e in row["examples"]):
            places.append(
                "workflow/expressions/language/verbs.py: "
                f"The row of {name} has examples of other parameters than its own."
            )
        if not set(row["tables"]) <= TABLES:
            places.append(f"{MADE_IN} make no table for {name}.")
        # A verb with a table is for operators that learn; one of two operands may be numpy's function.
        if row["tables"] or f'"{name}"' in methods:
            continue
        if row["arity"] == 1 or not isinstance(getattr(np, name, None), np.ufunc):
            places.append(f"workflow/expressions/language/methods.py has no method for {name}.")
        if f"`{name}`" not in guide and f"c.{name}(" not in guide:
            places.append(f"docs/guide/workflow.md does not name {name}.")
    for_operators = {"lookup", "gather", "bucketize"}
    return places + [
        f"docs/guide/workflow.md does not name c.{method}()."
        for method in set(found["methods"]) - for_operators
        if not method.startswith("_") and f"`{method}`" not in guide and f"c.{method}(" not in guide
    ]


def test_one_list_says_all_places_where_a_verb_is_missing():
    """And `spacing`, which only numpy knows, is the only one that is."""
    found = missing("spacing")
    assert found == [
        *(
            f"workflow/expressions/{module.replace('.', '/')}.py: "
            f"The interpreter {name} has no entry for spacing."
            for name, module in INTERPRETERS.items()
        ),
        "workflow/expressions/language/methods.py has no method for spacing.",
        "docs/guide/workflow.md does not name spacing.",
    ], "\n".join(missing() or found)


def test_an_interpreter_with_a_verb_too_few_or_too_many_is_refused():
    from workflow.expressions.language.verbs import VERBS, of_every_verb

    with pytest.raises(
        NotImplementedError, match="The interpreter mine has erf, which is not a verb"
    ):
        of_every_verb("mine", {**VERBS, "erf": None})
    with pytest.raises(NotImplementedError, match="The interpreter mine has no entry for tanh"):
        of_every_verb("mine", {name: None for name in VERBS if name != "tanh"})


def test_a_row_says_what_lists_and_nulls_do_to_it():
    from workflow.expressions.language.verbs import VERBS, Verb

    with pytest.raises(TypeError, match="'elementwise' and 'lenient'"):
        Verb("erf", 1, {}, VERBS["tanh"].infer)


def test_an_engine_has_the_verbs_that_are_re_expressed_there_and_no_others():
    from workflow.expressions.language.verbs import VERBS, of_every_verb

    own = {name: None for name, verb in VERBS.items() if "cudf" in verb.reexpressed_on}
    assert of_every_verb("cudf", own, engine="cudf") == own
    with pytest.raises(NotImplementedError, match="has no entry for lookup"):
        of_every_verb("cudf", {n: None for n in own if n != "lookup"}, engine="cudf")
    with pytest.raises(
        NotImplementedError, match="tanh, which is not a verb that is re-expressed there"
    ):
        of_every_verb("cudf", {**own, "tanh": None}, engine="cudf")
