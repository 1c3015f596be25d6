"""A workflow's state is its own: not its neighbour's, not the folder's, not a library's."""

from __future__ import annotations

import subprocess
import sys

from workflow import Workflow, ops

# `None` in sys.modules is an import that fails.
LOAD = """
import sys
sys.modules["pandas"] = None
from workflow import Workflow
workflow = Workflow.load(sys.argv[1])
print(workflow.transform({"city": ["Rome", "Oslo", None, "Bonn"]}).collect()["city"].to_list())
"""

# Each takes a tenth of a second or more to load, as long as fit takes for a million rows.
FIT = """
import sys
from workflow import Workflow, ops
shops = {"shop": ["a", "b"], "tags": [["x", None], []]}
tags = ["shop"] >> ops.JoinExternal(shops, on="shop") >> ops.Categorify()
Workflow(tags).fit({"shop": ["a", "c"]}).transform(shops).collect()
print(sorted({"pandas", "pyarrow.compute"} & sys.modules.keys()))
"""


def test_workflows_of_the_same_column_names_do_not_meet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = Workflow(["city"] >> ops.Categorify()).fit({"city": ["Rome", "Oslo", "Rome"]})
    two = Workflow(["city"] >> ops.Categorify()).fit({"city": ["Oslo"]})
    assert one.transform({"city": ["Rome", "Oslo"]}).collect()["city"].to_list() == [3, 4]
    assert two.transform({"city": ["Rome", "Oslo"]}).collect()["city"].to_list() == [2, 3]
    assert list(tmp_path.iterdir()) == [], "what is learnt is kept in memory until it is saved"


def test_a_saved_workflow_needs_no_pandas(tmp_path):
    import pandas as pd

    cities = pd.DataFrame({"city": ["Rome", "Oslo", "Rome"]})
    Workflow(["city"] >> ops.Categorify()).fit(cities).save(tmp_path / "saved")
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, tmp_path / "saved"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert loaded.stdout == "[3, 4, 1, 2]\n", loaded.stderr


def test_fit_loads_neither_pandas_nor_the_functions_of_pyarrow():
    fitted = subprocess.run(
        [sys.executable, "-c", FIT], capture_output=True, text=True, timeout=60, check=False
    )
    assert fitted.stdout == "[]\n", fitted.stderr
