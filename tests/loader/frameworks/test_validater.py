"""`KerasSequenceValidater` against `model.evaluate` on the same rows."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from loader import KerasSequenceValidater, LoaderError


def make_model():
    keras.utils.set_random_seed(0)
    price = keras.Input((1,), name="price")
    scaled = keras.layers.Rescaling(0.01)(price)
    click = keras.layers.Dense(1, "sigmoid", name="click")(scaled)
    value = keras.layers.Dense(1, name="value")(scaled)
    model = keras.Model({"price": price}, {"rating": click, "movieId": value})
    model.compile(
        "sgd",
        {"rating": "binary_crossentropy", "movieId": "mse"},
        loss_weights={"rating": 1.0, "movieId": 0.01},
        metrics={"rating": ["accuracy", keras.metrics.AUC(name="auc")], "movieId": ["mae"]},
        weighted_metrics={"rating": [keras.metrics.Precision(name="precision")]},
    )
    return model


def weigh(x, y):
    weight = 1.0 + tf.cast(y["rating"], tf.float32)
    return x, y, {"rating": weight, "movieId": weight}


@pytest.mark.parametrize("weighted", [False, True])
def test_several_outputs_metrics_and_sample_weights(make, weighted):
    options = {"cat_names": [], "label_names": ["rating", "movieId"], "batch_size": 96}
    train = make(**options)
    valid = make(shuffle=False, **options)
    if weighted:
        train, valid = train.map(weigh), valid.map(weigh)
    model = make_model()
    history = model.fit(
        train,
        epochs=2,
        verbose=0,
        shuffle=False,
        callbacks=[KerasSequenceValidater(valid)],
    ).history
    truth = model.evaluate(valid, verbose=0, return_dict=True)
    assert {"loss", "rating_auc", "rating_accuracy", "movieId_mae"} <= set(truth)
    for name, expected in truth.items():
        assert history[f"val_{name}"][-1] == pytest.approx(expected, rel=1e-5)
    rows = list(make(shuffle=False, **options))
    price = np.concatenate([x["price"].numpy() for x, _ in rows])
    movie = np.concatenate([y["movieId"].numpy() for _, y in rows])
    predicted = model({"price": price})["movieId"].numpy()
    error = np.abs(predicted - movie).mean()
    assert history["val_movieId_mae"][-1] == pytest.approx(error, rel=1e-4)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras says so as well
def test_validation_data_without_rows_is_refused(make):
    options = {"cat_names": [], "label_names": ["rating", "movieId"], "batch_size": 96}
    nothing = make(**options).as_dataset().filter(lambda *_: False)
    with pytest.raises(LoaderError, match="validation data with at least one row"):
        make_model().fit(
            make(**options), verbose=0, shuffle=False, callbacks=[KerasSequenceValidater(nothing)]
        )
