"""The three models of an export say the same, and everything."""

import json

import keras
import pytest
from small_export import configs, rows

from exporter import ExportError, ServingOptions
from exporter.plan.config_pbtxt import config_text
from training import models
from workflow import Workflow, get_embedding_sizes, ops
from workflow.wire.format import parse_columns


def test_the_configs_say_everything(export):
    report = export(serving=ServingOptions(network_instances=2, network_kind="KIND_CPU"))
    by_name = configs(report)
    assert list(by_name) == ["movies_nvt", "movies_tf", "movies"]
    for config in by_name.values():
        assert config.max_batch_size == 0
        for tensor in (*config.input, *config.output):
            assert tensor.data_type != 0
            assert list(tensor.dims) == [-1, 4 if tensor.name == "packed_int32" else 1]
    nvt, tf, ensemble = by_name.values()
    # The config of a step is the same for other data.
    for step in (nvt, tf):
        assert step.version_policy.HasField("all")
        assert step.parameters["published"].string_value == "movies"
        assert "generation" not in step.parameters
    assert list(ensemble.version_policy.specific.versions) == [1]
    assert ensemble.parameters["generation"].string_value == report.generation
    assert (nvt.backend, tf.backend, tf.platform) == (
        "python",
        "tensorflow",
        "tensorflow_savedmodel",
    )
    assert (ensemble.platform, ensemble.backend) == ("ensemble", "")
    assert tf.parameters["TF_SIGNATURE_DEF"].string_value == "ensemble"
    assert tf.parameters["TF_GRAPH_TAG"].string_value == "serve"
    assert [(group.count, group.kind) for group in tf.instance_group] == [(2, 2)]
    assert [(group.count, group.kind) for group in nvt.instance_group] == [(1, 2)]
    assert json.loads(ensemble.parameters["label_columns"].string_value) == ["rating"]
    assert [
        (step.model_name, step.model_version) for step in ensemble.ensemble_scheduling.step
    ] == [
        ("movies_nvt", 1),
        ("movies_tf", 1),
    ]


def test_both_ends_of_every_arrow_are_the_same(export):
    nvt, tf, ensemble = configs(export()).values()
    first, second = ensemble.ensemble_scheduling.step
    made = {first.output_map[t.name]: (t.data_type, list(t.dims)) for t in nvt.output}
    taken = {second.input_map[t.name]: (t.data_type, list(t.dims)) for t in tf.input}
    assert made == taken
    assert {t.name: t.data_type for t in ensemble.input} == {t.name: t.data_type for t in nvt.input}
    assert {t.name: t.data_type for t in ensemble.output} == {
        t.name: t.data_type for t in tf.output
    }


def test_lists_and_nulls_are_described(export):
    ensemble = configs(export())["movies"]
    inputs = {c.name: c for c in parse_columns(ensemble.parameters["inputs"].string_value)}
    assert {n: (c.dtype, c.layout, c.nullable) for n, c in inputs.items()} == {
        "userId": ("int64", "scalar", True),
        "genres": ("string", "flat", True),
        "price": ("float64", "scalar", True),
    }
    outputs = parse_columns(ensemble.parameters["outputs"].string_value)
    assert [(c.name, c.dtype) for c in outputs] == [("output", "float32")]


def test_what_the_network_does_not_take_is_left_out(export):
    features = export().plan.features
    assert features.unused == ("clicks",)
    assert [c.name for c in features.outputs] == ["genres", "price", "userId"]
    assert {str(cast) for cast in features.casts} == {"userId: int64 -> int32"}


def test_the_report_fits_a_terminal(export):
    text = str(export())
    assert max(map(len, text.splitlines())) <= 80
    for part in (
        "movies_nvt (python)",
        "genres__nnzs int64[N, 1]",
        "labels, not served: rating",
        "clicks",
    ):
        assert part in text


def test_many_columns_are_folded_in_the_report(export):
    names = [f"a_column_with_a_long_name_{n}" for n in range(9)]
    data = {name: [1, 2] for name in names}
    inputs = {n: keras.Input((1,), name=n, dtype="int32") for n in names}
    total = keras.layers.Add(name="total")([keras.ops.cast(t, "float32") for t in inputs.values()])
    text = str(export(keras.Model(inputs, total), Workflow(names).fit(data), labels=[]))
    assert max(map(len, text.splitlines())) <= 80
    for name in names:
        assert f"{name}: int64 -> int32" in " ".join(text.split())


@pytest.mark.parametrize("labels", [None, ["liked"]])
def test_a_tagged_label_needs_no_naming(labels, export):
    """It may be named, also if the workflow makes it under a name of its own."""
    ids = ["userId", "genres"] >> ops.Categorify()
    price = ["price"] >> ops.FillMissing(0.0) >> ops.Normalize()
    label = ["rating"] >> ops.LambdaOp(lambda r: r > 3, tags=["target"]) >> ops.Rename(name="liked")
    report = export(pipeline=Workflow(ids + price + label).fit(rows()), labels=labels)
    assert report.plan.features.labels == ("liked",)
    assert report.plan.features.unused == ()


def test_an_input_is_nullable_where_the_workflow_says_what_becomes_of_null(export):
    mixed = ["userId", "clicks"] >> ops.Categorify()
    plain = ["price"] >> ops.LambdaOp(lambda p: p * 2)
    inputs = {name: keras.Input((1,), name=name, dtype="int32") for name in ("userId", "clicks")}
    inputs["price"] = keras.Input((1,), name="price")
    total = keras.layers.Concatenate()([keras.ops.cast(t, "float32") for t in inputs.values()])
    network = keras.Model(inputs, keras.layers.Dense(1, name="score")(total))
    report = export(network, Workflow(mixed + plain).fit(rows()), labels=[])
    assert {c.name: c.nullable for c in report.plan.features.inputs} == {
        "userId": True,
        "clicks": True,
        "price": False,
    }


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "a b", "..", "ä", 7])
def test_names_that_triton_refuses(name, export, tmp_path):
    with pytest.raises(ExportError, match="Expected a name of letters"):
        export(name=name)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("version", [0, -1, 2**63, 1.0, "1", True])
def test_versions_that_are_none(version, export):
    with pytest.raises(ExportError, match="Expected the version as a whole number from 1"):
        export(version=version)


def test_what_is_on_disk_is_the_plan(export):
    report = export()
    for model in report.plan.models:
        path = report.repository / model.name / "config.pbtxt"
        versions = [1] if model.steps else []
        assert path.read_text() == config_text(model, versions)
        assert "max_batch_size: 0" in path.read_text()


def test_names_that_meet_inside_the_ensemble_are_kept_apart(export):
    """A column of the data may be called as the step's output would be inside."""
    data = {"price": [1.0, 2.0], "price_nvt": [1.0, 2.0]}
    twice = ["price"] >> ops.LambdaOp(lambda p: p * 2)
    inputs = {n: keras.Input((1,), name=n, dtype="float64") for n in data}
    total = keras.layers.Add(name="total")([keras.ops.cast(t, "float32") for t in inputs.values()])
    report = export(
        keras.Model(inputs, total), Workflow(twice + ["price_nvt"]).fit(data), labels=[]
    )
    first, second = report.plan.published.steps
    assert first.outputs == second.inputs
    assert not set(first.outputs.values()) & set(first.inputs.values())


def test_the_movielens_pipeline(export):
    """The seeds' example: a join that the client never sees, and the int32 fix."""
    movies = {"movieId": [1, 2, 3], "genres": [["a"], ["a", "b"], []]}
    joined = ["movieId"] >> ops.JoinExternal(
        movies, on="movieId", columns_ext=["movieId", "genres"]
    )
    ids = (["userId"] + joined) >> ops.Categorify()
    label = ["rating"] >> ops.LambdaOp(lambda rating: (rating > 3).cast("int8"))
    data = {"userId": [7, 8, 9], "movieId": [1, 2, 3], "rating": [1.0, 4.0, 5.0]}
    workflow = Workflow(ids + label).fit(data)
    workflow.output_dtypes["userId"] = workflow.output_dtypes["movieId"] = "int32"
    network = models.mlp(get_embedding_sizes(workflow), max_embedding_dim=4)
    plan = export(network, workflow).plan
    assert list(map(str, plan.published.inputs)) == ["userId int64[N, 1]", "movieId int64[N, 1]"]
    assert sorted(map(str, plan.steps[1].inputs)) == [
        "genres__values int64[V, 1]",
        "packed_int32 int32[N, 4]",
    ]
    assert plan.features.casts == ()
    assert plan.features.labels == ("rating",)
    assert plan.features.unused == ()
