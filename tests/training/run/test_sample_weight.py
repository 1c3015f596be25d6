"""A loader's column of weights trains as the same weights do in Keras' own `fit`."""

from functools import partial

import keras
import numpy as np
import polars as pl
import pytest

from loader import KerasSequenceLoader, LoaderError
from training import TrainingError, compile_model, train

ROWS = 1000  # the last batch is short, and the weights of the first one are 0
RANDOM = np.random.default_rng(0)
FRAME = pl.DataFrame(
    {
        "user": RANDOM.integers(0, 20, ROWS),
        "age": RANDOM.random(ROWS).astype("float32"),
        "click": RANDOM.integers(0, 2, ROWS).astype("int8"),
        "price": RANDOM.random(ROWS).astype("float32"),
        "weight": np.where(np.arange(ROWS) < 64, 0.0, RANDOM.exponential(2.0, ROWS)),
    }
).with_columns(times=pl.col("weight").round().cast(pl.Int64), counts=pl.col("weight") > 1)
LOSSES = {"click": "binary_crossentropy", "price": "mse"}
X = {name: FRAME[name].to_numpy()[:, None] for name in ("user", "age")}


def network(*names):
    """One output that has no name, or several."""
    keras.utils.set_random_seed(1)
    inputs = {
        "user": keras.Input((1,), name="user", dtype="int64"),
        "age": keras.Input((1,), name="age"),
    }
    vectors = keras.layers.Flatten()(keras.layers.Embedding(20, 4)(inputs["user"]))
    hidden = keras.layers.Concatenate()([vectors, inputs["age"]])
    outputs = {name: keras.layers.Dense(1, "sigmoid")(hidden) for name in names or ("click",)}
    return keras.Model(inputs, outputs if names else outputs["click"])


def load(*labels, sample_weight="weight", data=FRAME, **options):
    given = {"cat_names": ["user"], "cont_names": ["age"], "shuffle": False}
    given |= {"label_names": labels or ["click"], "sample_weight": sample_weight}
    return KerasSequenceLoader(data, 64, **given | options)


def kerass_own(name="weight", *names):
    """The model and its history after an epoch on arrays."""
    model = network(*names)
    labels = {name: FRAME[name].to_numpy()[:, None] for name in names or ("click",)}
    model.compile(
        keras.optimizers.SGD(0.5),
        {name: LOSSES[name] for name in names} or LOSSES["click"],
        weighted_metrics={"price": ["mae"]} if names else ["mae"],
    )
    weights = FRAME[name].to_numpy().astype("float32")
    history = model.fit(
        X, labels if names else labels["click"], 64, sample_weight=weights, shuffle=False, verbose=0
    )
    return model, history.history


def assert_equal_weights(one, other):
    for own, expected in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(own, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    "name", ["weight", pytest.param("times", marks=pytest.mark.long), "counts"]
)
def test_an_epoch_is_that_of_kerass_own_weights(name, split):
    model, expected = network(), kerass_own(name)
    report = train(
        model,
        load(sample_weight=name),
        load(sample_weight=name),
        optimizer=keras.optimizers.SGD(0.5),
        metrics=[],
        weighted_metrics=["mae"],
        split=split,
        patience=1,
    )
    assert_equal_weights(model, expected[0])
    for measure, (value,) in expected[1].items():
        assert report.history[measure] == pytest.approx([value], rel=1e-5)
    score = model.predict(load(sample_weight=name), verbose=0)[:, 0].astype("float64")
    losses = -np.log(np.where(FRAME["click"] > 0, score, 1 - score))
    mean = (losses * FRAME[name].to_numpy()).mean()  # over rows, whatever the weights' sum
    assert report.history["val_loss"] == pytest.approx([mean], rel=1e-5)
    assert model.evaluate(load(sample_weight=name), verbose=0)[0] == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("split", [False, True])
def test_one_weight_counts_for_each_output(split):
    names = ("click", "price")
    model, expected = network(*names), kerass_own("weight", *names)
    report = train(
        model,
        load(*names),
        optimizer=keras.optimizers.SGD(0.5),
        loss=LOSSES,
        metrics=[],
        weighted_metrics={"price": ["mae"]},
        split=split,
    )
    assert_equal_weights(model, expected[0])
    for measure in ("loss", "price_mae"):
        assert report.history[measure] == pytest.approx(expected[1][measure], rel=1e-5)


def test_a_run_of_other_weights_is_not_resumed(tmp_path):
    FRAME.write_parquet(tmp_path / "rows.parquet")  # of a frame the data would differ as well
    data = partial(load, data=tmp_path / "rows.parquet")
    train(network(), data(), checkpoint=tmp_path / "run")
    for other in ("times", None):
        with pytest.raises(LoaderError, match=rf"the sample_weight .*: weight\. Received: {other}"):
            train(network(), data(sample_weight=other), epochs=2, checkpoint=tmp_path / "run")
    resumed, whole = network(), network()
    train(resumed, data(), epochs=2, checkpoint=tmp_path / "run")
    train(whole, data(), epochs=2)
    assert_equal_weights(resumed, whole)


@pytest.mark.parametrize(
    ("spoilt", "options"), [(None, {"patience": 1}), (float("inf"), {"metrics": []}), (-1.0, {})]
)
def test_a_spoilt_weight_of_validation_data_ends_the_run(spoilt, options):
    """With a loss of NaN `patience` would restore the weights of the first epoch."""
    spoilt_rows = FRAME.with_columns(
        weight=pl.when(pl.int_range(pl.len()) == 100).then(spoilt).otherwise("weight")
    )
    with pytest.raises(TrainingError, match=r"weights of rows") as caught:
        train(network(), load(), load(data=spoilt_rows), **options)
    if spoilt != -1.0:
        assert "the loss of validation_data to be a number. Received: " in str(caught.value)
        assert "NaN or infinity in batch 2 of an epoch, in the weights of rows" in str(caught.value)
        assert "ops.FillMissing(0) leaves its row out" in str(caught.value)


def test_class_weights_beside_them_are_refused_as_by_keras():
    with pytest.raises(TrainingError, match=r"of sample_weight\. Leave one of the two out"):
        train(network(), load(), class_weight={1: 2.0})
    model = network()
    compile_model(model, "sgd")
    with pytest.raises(ValueError, match="at the same time"):
        model.fit(load(), class_weight={1: 2.0}, verbose=0, shuffle=False)
