"""The example of PyTorch, run in the environment that `make test-torch` makes."""

import os
import re
import subprocess
from pathlib import Path

import pytest

PYTHON = os.environ.get("TORCH_PYTHON")
EXAMPLE = Path(__file__).parents[2] / "examples" / "pytorch.py"


@pytest.mark.skipif(PYTHON is None, reason="`make test-torch` has PyTorch")
@pytest.mark.xdist_group("end_to_end")  # one server at a time
def test_clicks_are_learnt_and_served_as_pytorch_answers():
    result = subprocess.run([PYTHON, EXAMPLE], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    first, last = map(float, re.findall(r"loss ([\d.]+)$", result.stdout, re.MULTILINE))
    assert last < first
    # A half would be chance.
    assert float(re.search(r"AUC on later views: ([\d.]+)", result.stdout)[1]) > 0.7
    assert "packed as numbers, in this order: price, discount, age" in result.stdout
    assert "Parity passed: clicks, 5,000 rows" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
