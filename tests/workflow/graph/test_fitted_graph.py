"""A workflow that one thread fits while others use it, and copies of a workflow, are of one fit each."""

import copy
import pickle

import pytest

from workflow import Workflow, WorkflowError, ops
from workflow.graph import fitted_graph
from workflow.transform import outputs

FIRST, SECOND = {"city": ["Rome", "Oslo", "Oslo"]}, {"city": ["Bern", "Bern", "Rome"]}
CITIES = {"city": ["Rome", "Oslo", "Bern"]}
# Ids 0 to 2 are reserved; the most frequent city follows.
OF_FIRST, OF_SECOND = [4, 3, 2], [4, 2, 3]


@pytest.fixture
def cities():
    return Workflow(["city"] >> ops.Categorify()).fit(FIRST)


def ids(workflow):
    return workflow.transform(CITIES).collect()["city"].to_list()


def meanwhile(monkeypatch, module, name, act):
    """Do something after the first call of a function, as another thread may."""
    real = getattr(module, name)

    def first(*arguments, **settings):
        result = real(*arguments, **settings)
        monkeypatch.setattr(module, name, real)
        act()
        return result

    monkeypatch.setattr(module, name, first)


def test_what_was_derived_from_an_earlier_fit_is_not_kept(cities, monkeypatch, tmp_path):
    meanwhile(monkeypatch, fitted_graph, "with_fits", lambda: cities.fit(SECOND))
    assert ids(cities) in (OF_FIRST, OF_SECOND)
    assert ids(cities) == OF_SECOND
    cities.save(tmp_path)
    assert ids(Workflow.load(tmp_path)) == OF_SECOND


def test_a_call_is_of_one_fit(cities, monkeypatch, tmp_path):
    meanwhile(monkeypatch, outputs, "held_to", lambda: cities.fit(SECOND))
    assert ids(cities) == OF_FIRST
    assert ids(cities) == OF_SECOND

    cities.fit(FIRST)
    meanwhile(monkeypatch, outputs, "held_to", lambda: cities.fit(SECOND))
    cities.transform_to_parquet(CITIES, tmp_path / "out")
    assert ids(cities) == OF_SECOND


def test_a_dtype_that_is_assigned_meanwhile_is_not_lost(cities, monkeypatch):
    def assign():
        cities.output_dtypes["city"] = "int32"

    meanwhile(monkeypatch, fitted_graph, "with_fits", assign)
    _ = cities.output_schema
    assert cities.output_schema["city"].dtype == "int32"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_does_not_follow_the_original_nor_the_other_way_round(cities, copied):
    cities.output_dtypes["city"] = "int32"
    other = copied(cities)
    other.output_dtypes["city"] = "int16"
    assert [w.output_schema["city"].dtype for w in (cities, other)] == ["int32", "int16"]
    del cities.output_dtypes["city"]
    assert [w.output_schema["city"].dtype for w in (cities, other)] == ["int64", "int16"]
    other.fit(SECOND)
    assert (ids(cities), ids(other)) == (OF_FIRST, OF_SECOND)


def test_a_workflow_can_be_pickled_before_and_after_its_first_use():
    data = {"user": [7, 7, 9], "price": [1.0, 3.0, 6.0]}
    lags = ["user", "price"] >> ops.DifferenceLag("user", 1)
    workflow = Workflow(lags >> ops.FillMissing(0)).fit(data)
    for _ in range(2):
        again = pickle.loads(pickle.dumps(workflow))  # noqa: S301 - made here
        made = workflow.transform(data).collect()
        assert again.transform(data).collect().equals(made)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w))])  # noqa: S301
def test_a_sum_of_many_columns_can_be_copied_after_its_first_use(copied, tmp_path):
    names = [f"c{number}" for number in range(1_000)]
    data = {name: [1.0, 2.0] for name in names}
    total = ops.LambdaOp(lambda _, df: sum(df[n] for n in names[1:]), dependency=names[1:])
    workflow = Workflow(["c0"] >> total).fit(data)
    assert workflow.transform(data).collect()["c0"].to_list() == [999.0, 1998.0]
    workflow.save(tmp_path)  # since a lambda cannot be pickled
    loaded = Workflow.load(tmp_path)
    loaded.transform(data)
    assert copied(loaded).transform(data).collect()["c0"].to_list() == [999.0, 1998.0]


@pytest.mark.parametrize(
    "operator",
    [ops.Dropna(), ops.Groupby("user", aggs={"price": "max"}), ops.DifferenceLag("user", 1)],
    ids=lambda operator: operator.label,
)
@pytest.mark.parametrize("then", [lambda made: made, lambda made: made >> ops.FillMissing(0)])
def test_no_program_of_single_rows_leaves_out_an_operator_over_several(operator, then):
    data = {"user": [7, 7, 9], "price": [1.0, None, 6.0]}
    workflow = Workflow(then(["user", "price"] >> operator)).fit(data)
    with pytest.raises(WorkflowError, match=f"{operator.label} over .* needs more than one row"):
        _ = workflow.program
    with pytest.raises(WorkflowError, match=f"{operator.label} over .* needs more than one row"):
        workflow.served(workflow.output_schema.names)
