"""Lists that the network takes as one input of a fixed width."""

from itertools import cycle

import keras
import pytest
from small_export import configs, rows

from exporter import ExportError, ServingOptions
from exporter.columns.served_columns import select_features
from exporter.plan.runtime import RUNTIMES
from training.signature import ModelSignature, TensorSpec
from workflow import Workflow, ops


def fixed_network(width):
    genres = keras.Input((width,), name="genres", dtype="int64")
    vectors = keras.layers.Embedding(16, 4)(genres)
    score = keras.layers.Dense(1, name="score")(keras.layers.Flatten()(vectors))
    return keras.Model({"genres": genres}, score)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_list_of_a_fixed_width_is_sent_cut(runtime, export):
    pipeline = Workflow(["genres"] >> ops.Categorify()).fit(rows())
    options = ServingOptions(runtime=runtime, max_batch_size=64)
    report = export(
        fixed_network(3), pipeline, labels=[], sparse_max={"genres": 3}, serving=options
    )
    (column,) = report.plan.pipeline.client_columns
    assert (column.layout, column.width) == ("padded", 3)
    (tensor, _) = configs(report)["movies"].input
    assert (list(tensor.dims), tensor.allow_ragged_batch) == ([3], False)


def test_a_list_that_meets_a_column_is_sent_cut_too(export):
    ids = ["genres"] >> ops.Categorify()
    crossed = (ids + ["clicks"]) >> ops.LambdaOp(lambda c, df: (c + df["clicks"]) % 9)
    pipeline = Workflow(crossed["genres"]).fit(rows())
    options = ServingOptions(max_batch_size=64)
    report = export(
        fixed_network(3), pipeline, labels=[], sparse_max={"genres": 3}, serving=options
    )
    (genres, clicks) = report.plan.pipeline.client_columns
    assert (genres.layout, genres.width) == ("padded", 3)
    assert clicks.layout == "scalar"


@pytest.mark.parametrize("taken", [ops.ListSlice(-3, pad=True), ops.ListSlice(1, 4, pad=True)])
def test_a_list_of_which_later_values_are_taken_is_sent_whole(taken):
    pipeline = Workflow(["genres"] >> ops.Categorify() >> taken).fit(rows())
    signature = ModelSignature((TensorSpec("genres", "int64", (None, 3)),), ())
    assert select_features(pipeline, signature, [], {"genres": 3}).cuts == {}


@pytest.mark.parametrize("whole", [True, False])
def test_a_list_that_is_taken_whole_as_well_is_sent_whole(whole):
    ids = ["genres"] >> ops.Categorify()
    pipeline = Workflow(ids + (ids >> ops.Rename(name="all")) + ["userId"]).fit(rows())
    shapes = {"genres": 3, "userId": 1} | dict.fromkeys(("all__values", "all__nnzs") * whole, 1)
    inputs = tuple(TensorSpec(name, "int64", (None, width)) for name, width in shapes.items())
    features = select_features(pipeline, ModelSignature(inputs, ()), [], {"genres": 3})
    assert features.cuts == ({} if whole else {"genres": 3})


@pytest.mark.parametrize(
    ("sparse_max", "reason"),
    [
        ({"genres": 4}, "Expected sparse_max of 'genres' to be 3.*Received: 4"),
        ({"userId": 3}, r"Received: 'userId'.*keras.Input\(\(3,\), name='userId'\)"),
    ],
)
def test_a_width_that_is_not_the_networks_is_refused(sparse_max, reason, export, tmp_path):
    pipeline = Workflow(["genres"] >> ops.Categorify()).fit(rows())
    with pytest.raises(ExportError, match=reason):
        export(fixed_network(3), pipeline, labels=[], sparse_max=sparse_max)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(("runtime", "batch"), list(zip(RUNTIMES, cycle([0, 64, 64, 0]))))
def test_a_list_of_width_one_is_a_fixed_one(runtime, batch, export):
    pipeline = Workflow(["genres"] >> ops.Categorify() >> ops.ListSlice(1, pad=True)).fit(rows())
    options = ServingOptions(runtime=runtime, max_batch_size=batch)
    report = export(fixed_network(1), pipeline, labels=[], serving=options)
    (column,) = report.plan.features.outputs
    assert (column.layout, column.width) == ("fixed", 1)


def test_a_list_of_any_width_is_cut_to_one_where_it_is_said(export):
    pipeline = Workflow(["genres"] >> ops.Categorify()).fit(rows())
    (column,) = export(
        fixed_network(1), pipeline, labels=[], sparse_max={"genres": 1}
    ).plan.features.outputs
    assert (column.layout, column.width) == ("fixed", 1)


def test_a_list_of_any_width_is_no_single_value(export, tmp_path):
    pipeline = Workflow(["genres"] >> ops.Categorify()).fit(rows())
    advice = r"is a list in the workflow and one value a row.*sparse_max=\{'genres': 1\}"
    with pytest.raises(ExportError, match=advice):
        export(fixed_network(1), pipeline, labels=[])
    assert not (tmp_path / "models").exists()
