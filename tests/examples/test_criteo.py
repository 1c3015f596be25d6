"""The example that is interrupted and goes on, run as a newcomer would."""

import re

import pytest


@pytest.mark.long
@pytest.mark.xdist_group("end_to_end")  # one server at a time
def test_clicks_are_learnt_across_an_interruption_and_served(run_example):
    printed = run_example("criteo")
    before, after = printed.split("interrupted; resuming")
    assert "1/2" in before
    assert "1/2" not in after  # the second run does not train the first epoch again
    assert float(re.search(r"val_auc +([\d.]+)\n", after)[1]) > 0.7
    assert "Parity passed: clicks, 2,000 rows" in after
    assert max(map(len, printed.splitlines())) <= 80
