"""The example of a live model, run as a newcomer would."""

import pytest


@pytest.mark.long
@pytest.mark.xdist_group("end_to_end")  # one server at a time
def test_a_better_model_is_published_and_a_damaged_one_is_refused(run_example):
    printed = run_example("live")
    lines = {line[:44].strip(): line.split() for line in printed.splitlines()}
    quality = {
        event: float(words[words.index("AUC") + 1])
        for event, words in lines.items()
        if "AUC" in words
    }
    first, second, refused, last = quality.values()
    assert (last, refused) == (first, second)
    assert second > first + 0.01
    assert "Version 2 continues to serve" in printed
    (prices,) = [line for line in printed.splitlines() if line.split()[:2] == ["price", "nulls"]]
    assert prices.endswith("<<")
