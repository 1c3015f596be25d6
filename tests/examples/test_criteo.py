"""The example that is interrupted and goes on, run as a newcomer would."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

CRITEO = Path(__file__).parents[2] / "examples" / "criteo.py"


@pytest.mark.long
@pytest.mark.xdist_group("end_to_end")  # one server at a time
def test_clicks_are_learnt_across_an_interruption_and_served():
    result = subprocess.run(
        [sys.executable, CRITEO], capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stderr
    before, after = result.stdout.split("interrupted; resuming")
    assert "1/2" in before
    assert "1/2" not in after  # the second run does not train the first epoch again
    assert float(re.search(r"val_auc +([\d.]+)\n", after)[1]) > 0.7
    assert "Parity passed: clicks, 2,000 rows" in after
    assert max(map(len, result.stdout.splitlines())) <= 80
