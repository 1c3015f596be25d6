"""The example of a live model, run as a newcomer would."""

import subprocess
import sys
from pathlib import Path

import pytest

LIVE = Path(__file__).parents[2] / "examples" / "live.py"


@pytest.mark.long
@pytest.mark.xdist_group("end_to_end")  # one server at a time
def test_a_better_model_is_published_and_a_damaged_one_is_refused():
    result = subprocess.run(
        [sys.executable, LIVE], capture_output=True, text=True, timeout=240, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    lines = {line[:44].strip(): line.split() for line in result.stdout.splitlines()}
    quality = {
        event: float(words[words.index("AUC") + 1])
        for event, words in lines.items()
        if "AUC" in words
    }
    first, second, refused, last = quality.values()
    assert (last, refused) == (first, second)
    assert second > first + 0.01
    assert "Version 2 continues to serve" in result.stdout
    (prices,) = [
        line for line in result.stdout.splitlines() if line.split()[:2] == ["price", "nulls"]
    ]
    assert prices.endswith("<<")
