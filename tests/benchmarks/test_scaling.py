"""`make bench-scaling` measures every operator and every verb, and sees what grows too fast."""

from __future__ import annotations

import subprocess
import sys

import pytest
from expected_names import expect_names

from benchmarks.scaling import (
    EXPONENT,
    Growth,
    Measured,
    costs_too_much,
    flags_of,
    growths,
    once_more,
)
from benchmarks.scaling_cases import OPERATORS, VERB_CASES, Case
from workflow import Workflow, ops
from workflow.expressions.language.verbs import VERBS


def test_every_operator_and_every_verb_is_measured():
    for cases, names in ((OPERATORS, ops.__all__), (VERB_CASES, VERBS)):
        expect_names("benchmarks/scaling_cases.py", {case.name for case in cases}, names)
    titles = [case.title for case in (*OPERATORS, *VERB_CASES)]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("case", [*OPERATORS, *VERB_CASES], ids=lambda case: case.title)
def test_both_forms_hold_the_same_values(case: Case):
    for form in case.forms:
        rows, every = case.rows(form, 40, 7), case.every(form, 7)
        workflow = Workflow(case.make(7)).fit(every)
        assert workflow.transform(rows).collect().width > 0
        if form == "list" and not case.only_lists:
            flat = case.rows("scalar", 40, 7)
            for name in case.lists:
                values = rows[name].explode(empty_as_null=False)
                assert values.equals(flat[name], null_equal=True)


ROWS = (10_000, 100_000, 1_000_000)


def measured(cpu, *, forms=("scalar",), tables=(1_000,), counts=ROWS) -> dict[Growth, float]:
    """Costs by a formula of form, table and rows, with a start-up of 0.1 s."""
    return growths(
        Measured(form, table, rows, "fit", 0.1 + cpu(form, table, rows), 50.0)
        for form in forms
        for table in tables
        for rows in counts
    )


TIME = Growth(EXPONENT, "scalar", "fit", "cpu", 1_000)


def flags(found: dict[Growth, float]) -> list[str]:
    return [*flags_of(found, "X")]


def test_what_grows_as_its_rows_is_not_flagged():
    costs = measured(lambda _form, _table, rows: rows * 1e-6)
    assert costs[TIME] == pytest.approx(1)
    assert flags(costs) == []


def test_what_grows_faster_than_its_rows_is_flagged():
    (said,) = flags(measured(lambda _form, _table, rows: rows**1.5 * 1e-8))
    assert said.startswith("X, scalar, fit, time: exponent in rows 1.4")


def test_a_list_that_costs_more_than_its_values_is_flagged():
    costs = measured(
        lambda form, _table, rows: rows * (3e-6 if form == "list" else 1e-6),
        forms=("scalar", "list"),
    )
    (said,) = flags(costs)
    assert said.startswith("X, list, fit, time: lists to flat 2.9")


def test_a_cost_of_rows_times_entries_is_flagged():
    costs = measured(lambda _form, table, rows: rows * table * 1e-9, tables=(1_000, 1_000_000))
    assert any("exponent in entries" in said for said in flags(costs))


def test_a_cost_of_entries_beside_that_of_rows_is_not_flagged():
    costs = measured(
        lambda _form, table, rows: rows * 3e-8 + min(rows, table) * 1e-6,
        tables=(1_000, 30_000, 1_000_000),
    )
    assert flags(costs) == []


def test_what_leaves_the_caches_is_told_from_what_grows_by_more_rows():
    def cached(_form, _table, rows):
        return rows * (1e-6 if rows <= 100_000 else 3e-6)

    def grows(_form, _table, rows):
        return rows**1.5 * 1e-8

    more = (250_000, 1_000_000, 4_000_000)
    for cost in (cached, grows):
        assert costs_too_much(measured(cost))
    found = once_more(measured(cached), measured(cached, counts=more))
    assert flags(found) == []
    assert found[TIME] == pytest.approx(1)
    assert flags(once_more(measured(grows), measured(grows, counts=more)))


def test_a_copy_of_a_lists_values_is_not_flagged():
    costs = measured(
        lambda form, _table, rows: rows * (9e-8 if form == "list" else 4e-8),
        forms=("scalar", "list"),
    )
    assert flags(costs) == []


def test_what_is_within_the_noise_is_not_flagged():
    assert flags(measured(lambda _form, _table, rows: rows**2 * 1e-15)) == []


def test_noise_of_a_table_that_is_made_once_is_not_a_cost_of_lists():
    """`fit` of JoinExternal: half a second for a million entries, whatever the rows are."""
    costs = measured(
        lambda form, _table, rows: 0.4 + (0.11 if form == "list" and rows == ROWS[-1] else 0),
        forms=("scalar", "list"),
    )
    assert flags(costs) == []


def test_a_case_that_crashes_ends_the_benchmark():
    command = [sys.executable, "-m", "benchmarks.scaling", "--only", "Clip", "--gigabytes", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Clip ended with" in done.stderr
    assert "|" not in done.stdout
