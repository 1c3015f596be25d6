"""The golden rows of an export are kept in what it publishes, with the network's own answers."""

import keras
import numpy as np
import polars as pl
import pytest
import user_networks

from exporter import ServingOptions, verify
from exporter.plan.runtime import RUNTIMES
from serving.embedded.golden import read_golden
from workflow import Workflow, ops


def frame_of(request):
    """A row of small_export, read from its tensors by the rules of docs/guide/serving.md."""
    user, price = request["userId"][0, 0], request["price"][0, 0]
    lists = request["genres__values"][: request["genres__nnzs"][0, 0], 0]
    return pl.DataFrame(
        {
            "userId": [None if user == -(2**63) else user],
            "price": [None if np.isnan(price) else price],
            "genres": [[None if text == b"\xff" else text.decode() for text in lists]],
            "rating": [0.0],
            "clicks": [0],
        },
        schema_overrides={"userId": pl.Int64, "price": pl.Float64, "genres": pl.List(pl.String)},
    )


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_each_row_has_the_networks_answer(runtime, export, workflow, model):
    report = export(serving=ServingOptions(runtime=runtime))
    rows = read_golden(report.paths["movies"] / "golden.json")
    assert tuple(row.name for row in rows) == report.proof.rows
    assert {"nulls", "unseen values", "empty lists", "long lists"} <= {row.name for row in rows}
    for row in rows:
        features = workflow.transform(frame_of(row.request)).collect()
        genres = features["genres"].to_list()[0]
        expected = model(
            {
                "userId": features["userId"].to_numpy().reshape(-1, 1),
                "price": features["price"].to_numpy().reshape(-1, 1),
                "genres": (
                    np.array(genres, np.int64).reshape(-1, 1),
                    np.array([[len(genres)]]),
                ),
            }
        )
        (answer,), (allowed,) = row.answer.values(), row.allowed.values()
        np.testing.assert_allclose(answer, np.asarray(expected), atol=1e-6)
        assert 1e-5 <= allowed[0, 0] < (1e-3 if row.name == "usual values" else np.inf) or (
            row.name in {"smallest values", "largest values"}
        )
    assert verify(report.repository, "movies") == report.generation


def test_a_network_that_uses_its_batch_is_kept_as_it_answers_each_row_alone(export):
    with pytest.warns(UserWarning, match="depends on the rows that a client sends together"):
        report = export(
            user_networks.softmax_over_the_batch(), user_networks.make_workflow(), labels=[]
        )
    # A row that is alone in its batch has the whole probability.
    answers = [
        answer[0, 1]
        for row in read_golden(report.paths["movies"] / "golden.json")
        for name, answer in row.answer.items()
        if np.isfinite(row.allowed[name]).all()  # TensorFlow's answer to a NaN may be any
    ]
    assert len(answers) > 3
    assert answers == [1.0] * len(answers)


def test_the_allowed_difference_is_the_effect_of_the_inputs_last_digits(export):
    """Besides 1e-5 of the answer or of 1, 4 times the change of 1000 (x - 2) if x grows by 1e-6.

    A whole number is free where these digits decide it, and exact elsewhere.
    """
    x = keras.Input((1,), name="x", dtype="float64")
    answer = keras.layers.Lambda(lambda x: 1000 * (x - 2), dtype="float64", name="y")(x)
    given = {"x": [0.0, 2.0, 5e3, 1e17, 1e18]}
    above = keras.ops.cast(x > 2, "int32")
    allowed = [0.02, 1e-5 + 0.008, 49.98 + 20, 1e15 + 4e14, np.inf]
    workflow = Workflow(["x"] >> ops.FillMissing(0.0)).fit({"x": [1.0, None]})
    options = ServingOptions(golden_rows=given)
    network = keras.Model({"x": x}, {"y": answer, "above": above})
    report = export(network, workflow, labels=[], serving=options)
    rows = read_golden(report.paths["movies"] / "golden.json")[: len(allowed)]
    found = [row.allowed["y"].item() for row in rows]
    np.testing.assert_allclose(found, allowed, rtol=1e-3)
    assert [row.allowed["above"].item() for row in rows] == [0, np.inf, 0, 0, np.inf]


def test_golden_rows_of_ones_own_come_first(export):
    given = pl.DataFrame({"userId": [2], "price": [7.5], "genres": [["b", "a"]]})
    report = export(serving=ServingOptions(golden_rows=given))
    first = read_golden(report.paths["movies"] / "golden.json")[0]
    assert first.name == "golden_rows[0]"
    assert first.request["price"].tolist() == [[7.5]]
    assert first.request["genres__values"].tolist() == [[b"b"], [b"a"]]
