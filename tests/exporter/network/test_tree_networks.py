"""Models of LightGBM, XGBoost and scikit-learn are served as these libraries answer."""

import re

import lightgbm
import numpy as np
import onnx
import polars as pl
import pytest
import xgboost
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from skl2onnx.common import data_types as sklearn_types
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from exporter import ExportError, ServingOptions, export_ensemble
from serving import EnsembleClient, TritonServer, check_parity
from training.network.onnx_network import OnnxModelFile
from workflow import Workflow, ops

ORDER = ["hour", "price", "city"]
KIND = [("features", FloatTensorType([None, len(ORDER)]))]
# Thresholds of LightGBM are float64, and those of ONNX float32.
CLOSE = 1e-5


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    count = 400
    price = random.integers(1, 90, count) / 4
    clicked = (price > 9) ^ (random.random(count) < 0.2)
    return pl.DataFrame(
        {
            "city": random.choice(["Rome", "Oslo", "Lima", "Åre ☃"], count),
            "hour": random.integers(0, 24, count),
            "price": pl.Series(price).set(pl.Series(random.random(count) < 0.1), None),
            "clicked": clicked.astype(np.int64),
        }
    )


@pytest.fixture(scope="module")
def workflow(rows):
    """Trees take a missing number as NaN."""
    price = ["price"] >> ops.LambdaOp(lambda c: c.fill_null(float("nan")))
    city = ["city"] >> ops.Categorify()
    return Workflow(city + price + ["hour", "clicked"]).fit(rows)


@pytest.fixture(scope="module")
def named(rows):
    """A workflow for inputs of their own, text among them."""
    city = ["city"] >> ops.LambdaOp(lambda c: c.fill_null("none"))
    return Workflow(city + (["price"] >> ops.FillMissing(0.0)) + ["clicked"]).fit(rows)


@pytest.fixture(scope="module")
def features(workflow, rows):
    return workflow.transform(rows).select(ORDER).collect().to_numpy().astype(np.float32)


@pytest.fixture(scope="module")
def trained(features, named, rows):
    """Each model, its ONNX form, and its own answers by the names of outputs."""
    clicked = rows["clicked"].to_numpy()
    few = {"n_estimators": 8, "random_state": 0}
    trees = lightgbm.LGBMClassifier(**few, verbose=-1).fit(features, clicked)
    ranks = lightgbm.LGBMRegressor(**few, verbose=-1).fit(features, clicked)
    boosted = xgboost.XGBClassifier(**few, max_depth=3).fit(features, clicked)
    frame = named.transform(rows).select("city", "price").collect().to_pandas()
    encoded = OneHotEncoder(handle_unknown="ignore")
    parts = ColumnTransformer([("c", encoded, ["city"]), ("p", StandardScaler(), ["price"])])
    linear = make_pipeline(parts, LogisticRegression()).fit(frame, np.where(clicked, "yes", "no"))
    kinds = [
        ("city", sklearn_types.StringTensorType([None, 1])),
        ("price", sklearn_types.FloatTensorType([None, 1])),
    ]
    return {
        "lightgbm": (
            convert_lightgbm(trees, initial_types=KIND, zipmap=False),
            {"label": trees.predict(features), "probabilities": trees.predict_proba(features)},
        ),
        "lightgbm_regressor": (
            convert_lightgbm(ranks, initial_types=KIND),
            {"variable": ranks.predict(features)},
        ),
        "xgboost": (
            convert_xgboost(boosted, initial_types=KIND),
            {"label": boosted.predict(features), "probabilities": boosted.predict_proba(features)},
        ),
        "sklearn": (
            to_onnx(linear, initial_types=kinds, options={"zipmap": False}),
            {"label": linear.predict(frame), "probabilities": linear.predict_proba(frame)},
        ),
    }


def export(network, workflow, path, name="clicks", **options):
    serving = ServingOptions(**options)
    return export_ensemble(network, workflow, name, path, ["clicked"], serving=serving)


def test_they_are_served_as_they_answer(trained, workflow, named, rows, tmp_path):
    for number, (name, (network, _)) in enumerate(trained.items()):
        own = named if name == "sklearn" else workflow
        columns = {} if name == "sklearn" else {"features": ORDER}
        runtime, batch = ("fused_onnx", 0) if number % 2 else ("onnx", 512)
        export(
            network,
            own,
            tmp_path,
            name,
            columns=columns,
            runtime=runtime,
            max_batch_size=batch,
        )
    raw = rows.drop("clicked")
    with TritonServer(tmp_path) as server:
        for name, (network, answers) in trained.items():
            own = named if name == "sklearn" else workflow
            with EnsembleClient(server.grpc_url, name) as client:
                served = client.predict(raw.to_dict(as_series=False))
                report = check_parity(client, own, network, rows)
            assert served.keys() == answers.keys()
            for output, expected in answers.items():
                here = served[output].reshape(expected.shape)
                if expected.dtype.kind == "f":
                    np.testing.assert_allclose(here, expected, rtol=0, atol=CLOSE)
                else:
                    assert here.tolist() == expected.tolist()
            assert report.passed, f"\n{report}"


def test_zipmap_is_refused_with_the_remedy(workflow, features, rows, tmp_path):
    trees = lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(features, rows["clicked"])
    with pytest.raises(
        ExportError, match=r"'probabilities' .*a sequence of dictionaries\. .*zipmap=False"
    ):
        export(convert_lightgbm(trees, initial_types=KIND), workflow, tmp_path)


def test_zipmap_is_taken_out_as_the_error_says(workflow, features, rows, tmp_path):
    """CatBoost's files have one too, and no option to leave it out."""
    trees = lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(features, rows["clicked"])
    network = convert_lightgbm(trees, initial_types=KIND)
    columns = {"features": ORDER}
    with pytest.raises(ExportError) as caught:
        export(network, workflow, tmp_path, columns=columns)
    code = re.search(r"take it out by (.*)\.$", str(caught.value))[1]
    exec(code, {"network": network, "onnx": onnx})  # noqa: S102 - of our own error
    export(network, workflow, tmp_path, columns=columns)
    answered = [*OnnxModelFile(network).predict_on_batch({"features": features}).values()][1]
    np.testing.assert_allclose(answered, trees.predict_proba(features), atol=CLOSE)


def test_an_encoder_that_refuses_unknown_values(workflow, features, rows, tmp_path):
    """As scikit-learn's own do by default; the advice was to name other columns."""
    encoded = make_pipeline(OneHotEncoder(), LogisticRegression())
    network = to_onnx(
        encoded.fit(features[:, [2]], rows["clicked"]),
        initial_types=[("city", sklearn_types.FloatTensorType([None, 1]))],
        options={"zipmap": False},
    )
    with pytest.raises(ExportError, match=r"Unknown Category.*handle_unknown='ignore'\)\.$"):
        export(network, workflow, tmp_path)


def test_nearest_neighbors_without_a_loop(workflow, features, rows, tmp_path):
    """A distance is a loop in plain ONNX, and one operation of onnxruntime's."""
    whole, hours = features[:, [0, 2]], rows["hour"].to_numpy()
    kind = [("features", sklearn_types.FloatTensorType([None, 2]))]
    neighbors = KNeighborsRegressor(1).fit(whole, hours)
    columns = {"features": ["hour", "city"]}
    with pytest.raises(ExportError, match=r"Received: Scan .*nearest neighbors .*'optim': 'cdist'"):
        export(to_onnx(neighbors, initial_types=kind), workflow, tmp_path, columns=columns)
    network = to_onnx(
        neighbors, initial_types=kind, options={KNeighborsRegressor: {"optim": "cdist"}}
    )
    export(network, workflow, tmp_path, columns=columns, max_batch_size=8)
    # The hour is one of the two columns.
    answered = OnnxModelFile(network).predict_on_batch({"features": whole})["variable"]
    np.testing.assert_allclose(answered.ravel(), hours, atol=CLOSE)


def test_trees_that_ask_for_a_further_column(workflow, features, rows, tmp_path):
    """The width of the input is open, so that only the trees tell."""
    trees = lightgbm.LGBMRegressor(n_estimators=8, verbose=-1).fit(features, rows["clicked"])
    network = convert_lightgbm(trees, initial_types=[("features", FloatTensorType([None, None]))])
    with pytest.raises(
        ExportError,
        match=r"Expected 3 columns or more for the input 'features'.*asks for column 2.*: 2, hour, price",
    ):
        export(network, workflow, tmp_path, columns={"features": ["hour", "price"]})
    with pytest.raises(ExportError, match=r"'features' of the network, which takes any number"):
        export(network, workflow, tmp_path)
    report = export(network, workflow, tmp_path, columns={"features": ORDER})
    assert [t.name for t in report.plan.published.outputs] == ["variable"]
