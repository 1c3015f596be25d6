"""The example of trees, run as a newcomer would; its baseline is computed again, in pandas."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from package_data import flights_tables

TREES = Path(__file__).parents[2] / "examples" / "trees.py"


def share_of_ranked_pairs(late, score):
    """The area under the curve, from its definition over pairs; a tie is half a pair."""
    on_time = score[~late].value_counts()
    below = on_time.sort_index().cumsum()
    found = sum(
        count * (below[value] - on_time[value] / 2 if value in on_time else below[:value].max())
        for value, count in score[late].value_counts().items()
    )
    return found / late.sum() / (~late).sum()


@pytest.mark.long
@pytest.mark.xdist_group("end_to_end")  # one server at a time
def test_late_flights_are_found_and_served_as_lightgbm_answers():
    result = subprocess.run([sys.executable, TREES], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = {
        name: float(area)
        for name, area in re.findall(r"^(\w+) +AUC ([\d.]+)$", result.stdout, re.MULTILINE)
    }
    flights = flights_tables()["flights"].to_pandas().dropna(subset="arr_delay")
    late, is_known = flights["arr_delay"] > 15, flights["month"] < 10
    rates = late[is_known].groupby(flights["carrier"][is_known]).mean()
    score = flights["carrier"][~is_known].map(rates)
    assert found["carrier"] == pytest.approx(
        share_of_ranked_pairs(late[~is_known], score), abs=1e-4
    )
    assert found["trees"] > found["carrier"] + 0.05
    assert "packed as features, in this order: carrier, origin, dest, hour" in result.stdout
    assert "Parity passed: flights, 5,000 rows" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
