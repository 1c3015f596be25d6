"""The server answers what the offline pipeline answers: the promise of the project."""

import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from pipelines import NAMES, PIPELINES, tensorflow_ids

from serving import check_parity


@pytest.mark.parametrize("name", PIPELINES)
def test_server_equals_offline(name, pipelines, client):
    pipeline = pipelines[name]
    report = check_parity(client(name), pipeline.workflow, pipeline.model, pipeline.rows)
    assert report.passed, f"\n{report}"


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("kind", ["pandas", "dict"])
def test_every_kind_of_table(name, kind, pipelines, client):
    rows = pipelines[name].rows
    connection = client(name)
    expected = connection.predict(rows)
    table = rows.to_pandas() if kind == "pandas" else rows.to_dict(as_series=False)
    answer = connection.predict(table)
    for column in expected.columns:
        np.testing.assert_array_equal(
            np.ravel(answer[column].tolist()), np.ravel(expected[column].to_list())
        )


@pytest.mark.parametrize("name", PIPELINES)
def test_a_row_alone_is_the_row_in_a_batch(name, pipelines, client):
    rows, connection = pipelines[name].rows, client(name)
    together = connection.predict(rows)
    alone = pl.concat([connection.predict(rows[row]) for row in range(rows.height)])
    for column in together.columns:
        np.testing.assert_allclose(
            alone[column].to_numpy(), together[column].to_numpy(), rtol=1e-6, atol=1e-7
        )


def test_extremes_come_back_to_the_bit(pipelines, client):
    rows = pipelines["extremes"].rows
    answer = client("extremes").predict(rows)
    for name in ("i32", "i64", "f32", "f64"):
        assert answer[f"{name}_back"].dtype == rows[name].dtype
        assert answer[f"{name}_back"].to_list() == rows[name].to_list()


def test_pretrained_vectors_arrive_as_they_were_given(client):
    vectors = np.random.default_rng(3).normal(size=(40, 3)).astype(np.float32)
    answer = client("pretrained").predict({"item": [39, 40, None], "city": ["é", "q", "a"]})
    nothing = [0.0] * 3
    expected = [
        [*vectors[39], *vectors[39], 0.5, 1.5],
        [*nothing, *nothing, 0.0, 0.0],
        [*nothing, *nothing, -2.0, np.float32(1e-3)],
    ]
    np.testing.assert_array_equal(answer["together"], np.array(expected, np.float32))


def test_served_ids_of_feature_columns_are_tensorflows(pipelines, client):
    """Rows without null, which TensorFlow's tensors do not hold; -1 and "" are missing."""
    rows = pipelines["feature_columns"].rows.with_columns(pl.col("price").fill_nan(None))
    rows = rows.drop_nulls(["city", "street", "user", "price"])
    served = client("feature_columns_nvt").predict(rows)
    columns = tensorflow_ids()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tensors = {n: tf.constant(rows[n].to_list())[:, None] for n in ("city", "street", "price")}
        tensors["user"] = tf.constant(rows["user"].to_numpy())[:, None]
        counts = {
            name: tf.compat.v1.feature_column.input_layer(
                tensors, [tf.feature_column.indicator_column(column)]
            )
            for name, column in columns.items()
        }
        session.run(tf.compat.v1.tables_initializer())
        expected = session.run(counts)
    assert rows.height == 4
    for name, count in expected.items():
        ids = np.where(count.any(axis=1), count.argmax(axis=1), -1)
        np.testing.assert_array_equal(np.ravel(served[name].to_numpy()), ids, name)


def test_strings_of_every_length_have_their_own_id(client):
    connection = client("strings")
    ids = connection.predict(pl.DataFrame({"name": NAMES}))["id"].to_list()
    assert len(set(ids)) == len(NAMES)
    assert min(ids) >= 3
    assert connection.predict({"name": [None, "never seen", "", "\x00"]})["id"][:2].tolist() == [
        [1],
        [2],
    ]


def test_lists_empty_null_and_long(pipelines, client):
    workflow = pipelines["movielens"].workflow
    rows = pipelines["movielens"].rows
    served = client("movielens_nvt").predict(rows)
    offline = workflow.transform(rows).collect()
    for column in ("tags", "genres"):
        assert served[column].to_list() == offline[column].to_list()
    assert served["tags"].to_list()[1:4] == [[], [], [3, 1]]
    assert served["tags"].list.len()[5] == 300


def test_output_dtypes_hold_in_transform_and_in_the_server(pipelines, client):
    workflow, rows = pipelines["movielens"].workflow, pipelines["movielens"].rows
    assert workflow.transform(rows).collect_schema()["userId"] == pl.Int32
    assert client("movielens_nvt").predict(rows)["userId"].dtype == pl.Int32


@pytest.mark.parametrize(("name", "label"), [("movielens", "rating"), ("extremes", "bought")])
def test_a_label_is_never_a_client_input(name, label, pipelines, client):
    connection = client(name)
    assert label not in [column.name for column in connection.contract.inputs]
    assert (
        connection.predict(pipelines[name].rows.drop(label)).height == pipelines[name].rows.height
    )


def test_a_column_that_the_network_does_not_use_is_not_asked_for(pipelines, client):
    connection = client("movielens")
    assert "clicks" not in [column.name for column in connection.contract.inputs]
    assert connection.predict(pipelines["movielens"].rows.drop("clicks")).height == 6


def test_parity_fails_for_another_model_and_another_workflow(pipelines, client):
    """A proof that cannot fail proves nothing."""
    import keras

    from workflow import Workflow

    pipeline = pipelines["movielens"]
    other = keras.models.clone_model(pipeline.model)
    report = check_parity(client("movielens"), pipeline.workflow, other, pipeline.rows)
    assert not report
    assert {output.kind for output in report.outputs if output.mismatches} == {"prediction"}
    refitted = Workflow(pipeline.workflow.nodes[-1]).fit(pipeline.rows.reverse().head(3))
    report = check_parity(client("movielens"), refitted, pipeline.model, pipeline.rows)
    assert {"tags", "userId", "price"} <= {
        output.name for output in report.outputs if output.mismatches
    }
    assert "FAILED" in str(report)
    assert "failed" in report.to_html()
