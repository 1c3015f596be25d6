"""`make bench-scaling` measures wide tables and graphs of many nodes, and sees what grows too fast."""

from __future__ import annotations

import pytest

from benchmarks import measure, scaling_files, scaling_width
from benchmarks.scaling_costs import exponent_of
from benchmarks.scaling_width import CASES, MOST_EXPONENT, NOISE, SIZES


def costs(exponent: float) -> list[float]:
    """A start-up of 2 s, and 4 s for the columns between the fewest and the most."""
    most = SIZES[-1] - SIZES[0]
    return [2 + 4 * ((size - SIZES[0]) / most) ** exponent for size in SIZES]


@pytest.mark.parametrize("exponent", [0.5, 1, 2])
def test_the_exponent_is_that_of_what_lies_beyond_the_start_up(exponent):
    assert exponent_of(SIZES, costs(exponent), NOISE) == pytest.approx(exponent)
    assert (exponent > MOST_EXPONENT) == (exponent == 2)


def test_what_lies_within_the_noise_has_no_exponent():
    assert exponent_of(SIZES, [1, 1, 1, 1, 1 + 0.9 * NOISE], NOISE) is None
    assert exponent_of(SIZES, [1, 0.9, 0.8, 0.7, 2], NOISE) is None


@pytest.mark.parametrize("case", CASES)
def test_every_action_of_a_case_can_be_measured(case, tmp_path):
    actions = []
    for action, work in CASES[case](6, tmp_path):
        work()
        actions.append(action)
    assert len(set(actions)) == len(actions) >= 7


def test_the_command_prints_draws_and_fails_at_what_grows_too_fast(capsys, monkeypatch, tmp_path):
    figures = {"fit": [0.1, 1.1, 2.1], "export": [0.1, 1.0, 9.0]}
    monkeypatch.setattr(scaling_width, "_costs", lambda *_: figures)
    monkeypatch.setattr(measure, "CHARTS", tmp_path)
    with pytest.raises(SystemExit, match=r"1 costs grow faster than they should:\nnodes, export: "):
        scaling_width.main(["--only", "nodes", "--sizes", "10", "110", "210"])
    said = capsys.readouterr().out
    assert "| nodes, fit | 0.10 s | 1.10 s | 2.10 s | 1.00 |  |" in said
    assert "**!**" in said
    (chart,) = tmp_path.iterdir()
    assert "stroke-dasharray" in chart.read_text()


@pytest.mark.long
def test_files_are_measured_as_a_table(capsys, monkeypatch, tmp_path):
    case = scaling_files.Case("fit", (1, 2), lambda *_: (lambda: sum(range(20_000)), lambda: None))
    monkeypatch.setattr(scaling_files, "cases", lambda: iter([case]))
    monkeypatch.setattr(measure, "CHARTS", tmp_path)
    scaling_files.main([])
    said = capsys.readouterr().out
    assert "| fit | 1 | 0.00" in said
    assert "Chart: " in said
