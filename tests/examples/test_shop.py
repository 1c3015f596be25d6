"""The example with most of the operators, run as a newcomer would."""

import subprocess
import sys
from pathlib import Path

import pytest

SHOP = Path(__file__).parents[2] / "examples" / "shop.py"


@pytest.mark.long
@pytest.mark.xdist_group("end_to_end")  # one server at a time
def test_orders_of_every_kind_are_served_as_they_were_trained():
    result = subprocess.run(
        [sys.executable, SHOP], capture_output=True, text=True, timeout=240, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Parity passed: shop, 2,000 rows" in result.stdout
