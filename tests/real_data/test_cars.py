"""Cars as JSON has them: whole numbers beside fractions, missing values, columns of several types."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from package_data import folder
from whole_way import ids_by_frequency

from workflow import Workflow, WorkflowError, ops


@pytest.fixture(scope="module")
def cars() -> pd.DataFrame:
    """406 cars; every column is one of Python objects."""
    rows = json.loads((folder("vega_datasets", "_data") / "cars.json").read_text())
    return pd.DataFrame(rows, dtype=object)


def features_of_cars() -> Workflow:
    ids = ["Origin", "Cylinders"] >> ops.Categorify()
    power = ["Horsepower"] >> ops.FillMedian(add_binary_cols=True)
    scaled = power["Horsepower"] >> ops.Normalize()
    far = ["Miles_per_Gallon"] >> ops.FillMissing(0.0) >> ops.NormalizeMinMax()
    return Workflow(ids + scaled + power["Horsepower_filled"] + far)


def test_columns_of_objects_are_what_pandas_says_they_are(cars):
    learnt, unseen = cars[:300], cars[300:]
    made = features_of_cars().fit(learnt).transform(unseen).collect()
    for name in ("Origin", "Cylinders"):
        ids = ids_by_frequency(learnt[name])
        assert made[name].to_list() == [ids.get(value, 2) for value in unseen[name]]
    power = learnt["Horsepower"].astype(float)
    median = power.median()
    filled, of_unseen = power.fillna(median), unseen["Horsepower"].astype(float)
    expected = (of_unseen.fillna(median) - filled.mean()) / filled.std()
    np.testing.assert_allclose(made["Horsepower"], expected, atol=1e-6)
    assert made["Horsepower_filled"].to_list() == of_unseen.isna().to_list()
    assert any(of_unseen.isna())
    far = learnt["Miles_per_Gallon"].astype(float).fillna(0)
    expected = unseen["Miles_per_Gallon"].astype(float).fillna(0) / far.max()
    np.testing.assert_allclose(made["Miles_per_Gallon"], expected, atol=1e-6)


def test_a_column_of_several_types_is_named_where_it_is_used_and_else_passed_over(cars):
    marked = cars.assign(Horsepower=cars["Horsepower"].where(cars["Horsepower"].notna(), "unknown"))
    with pytest.raises(WorkflowError, match="Horsepower"):
        features_of_cars().fit(marked)
    makers = Workflow(["Origin"] >> ops.Categorify())
    assert makers.fit(marked).transform(marked).collect().height == len(cars)
    fitted = features_of_cars().fit(cars)
    with pytest.raises(WorkflowError, match="Horsepower"):
        fitted.transform(marked).collect()


def test_a_value_of_another_kind_in_new_data_is_refused(cars):
    fitted = features_of_cars().fit(cars)
    half = cars.assign(Cylinders=cars["Cylinders"].astype(float) + 0.5)
    expected = re.compile(r"Cylinders.*Received: 8\.5", re.DOTALL)
    with pytest.raises(WorkflowError, match=expected):
        fitted.transform(half).collect()
    with pytest.raises(WorkflowError, match=r"No column .Origin."):
        fitted.transform(cars.drop(columns="Origin")).collect()
