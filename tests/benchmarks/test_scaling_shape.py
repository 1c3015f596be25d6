"""`make bench-scaling` measures wide tables, many nodes and files, and sees what grows too fast."""

from __future__ import annotations

import pytest

from benchmarks import measure, scaling_shape
from benchmarks.scaling import exponent_of
from benchmarks.scaling_shape import CASES, MOST_EXPONENT, NOISE, WIDE


def costs(exponent: float) -> list[float]:
    """A start-up of 2 s, and 4 s for the columns between the fewest and the most."""
    most = WIDE[-1] - WIDE[0]
    return [2 + 4 * ((size - WIDE[0]) / most) ** exponent for size in WIDE]


@pytest.mark.parametrize("exponent", [0.5, 1, 2])
def test_the_exponent_is_that_of_what_lies_beyond_the_start_up(exponent):
    assert exponent_of(WIDE, costs(exponent), NOISE) == pytest.approx(exponent)
    assert (exponent > MOST_EXPONENT) == (exponent == 2)


def test_what_lies_within_the_noise_has_no_exponent():
    assert exponent_of(WIDE, [1, 1, 1, 1, 1 + 0.9 * NOISE], NOISE) is None
    assert exponent_of(WIDE, [1, 0.9, 0.8, 0.7, 2], NOISE) is None


@pytest.mark.parametrize("case", CASES)
def test_every_action_of_a_case_can_be_measured(case, tmp_path):
    actions = []
    for action, *works in CASES[case].actions(6, tmp_path):
        for work in works:
            work()
        actions.append(action)
    assert len(set(actions)) == len(actions) >= 1


def test_the_command_prints_draws_and_fails_at_what_costs_too_much(capsys, monkeypatch, tmp_path):
    figures = {
        "fit": [[0.1], [1.1], [2.1]],
        "export": [[0.1], [1.0], [9.0]],
        "epoch": [[0.1, 0.1], [1.1, 0.2], [2.1, 0.3]],
    }
    monkeypatch.setattr(scaling_shape, "_costs", lambda *_: figures)
    monkeypatch.setattr(measure, "CHARTS", tmp_path)
    with pytest.raises(SystemExit, match=r"2 costs.*\nnodes, export: .*\nnodes, epoch: 7\.0 times"):
        scaling_shape.main(["--only", "nodes", "--sizes", "10", "110", "210"])
    said = capsys.readouterr().out
    assert "| nodes, fit | 0.10 s | 1.10 s | 2.10 s | 1.00 |" in said
    (chart,) = tmp_path.iterdir()
    assert "stroke-dasharray" in chart.read_text()
