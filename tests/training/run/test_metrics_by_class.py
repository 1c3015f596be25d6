"""Metrics of a number for each class, such as Keras' F1 score."""

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from sklearn.metrics import confusion_matrix, f1_score

from loader import KerasSequenceLoader
from training import TrainingError, train

RNG = np.random.default_rng(0)
CLASS = RNG.integers(0, 3, 300)
FRAME = pl.DataFrame(
    {"x": (CLASS + RNG.normal(size=300)).astype(np.float32)}
    | {f"is_{number}": (number == CLASS).astype(np.float32) for number in range(3)}
)


class Confusion(keras.metrics.Metric):
    """The counts of rows by their class and the predicted one."""

    def __init__(self):
        super().__init__(name="confusion")
        self.counts = self.add_variable((3, 3), "zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        del sample_weight
        own, found = (keras.ops.argmax(y, axis=1) for y in (y_true, y_pred))
        self.counts.assign_add(tf.math.confusion_matrix(own, found, 3, dtype=tf.float32))

    def result(self):
        return self.counts.value


def trained(**options):
    keras.utils.set_random_seed(0)
    x = keras.Input((1,), name="x")
    model = keras.Model({"x": x}, keras.layers.Dense(3, "softmax")(x))
    names = [f"is_{number}" for number in range(3)]
    loader = KerasSequenceLoader(FRAME, 100, label_names=names, cont_names=["x"], seed=0)
    data = loader.map(lambda x, y: (x, tf.concat([y[name] for name in names], axis=1)))
    report = train(
        model, data, data, loss="categorical_crossentropy",
        metrics=["f1_score", Confusion()], optimizer="sgd", **options,
    )  # fmt: skip
    return report, model({"x": FRAME["x"].to_numpy()[:, None]}).numpy().argmax(axis=1)


@pytest.mark.parametrize("split", [True, False], ids=["split", "keras"])
def test_each_number_is_reported_by_its_place(split, capsys, tmp_path):
    report, found = trained(epochs=2, split=split, verbose=True, tensorboard=tmp_path)
    scores = [report.history[f"val_f1_score[{number}]"][-1] for number in range(3)]
    np.testing.assert_allclose(scores, f1_score(CLASS, found, average=None), atol=1e-6)
    for own, expected in np.ndenumerate(confusion_matrix(CLASS, found)):
        assert report.history[f"val_confusion[{own[0]}, {own[1]}]"][-1] == expected
    assert {len(values) for values in report.history.values()} == {2}
    assert "f1_score[2]" in str(report)
    assert "val_loss" in capsys.readouterr().out
    assert "epoch_f1_score[0]" in curves(tmp_path / "validation")


def curves(folder):
    """The names in TensorBoard's files."""
    return {
        value.tag
        for file in folder.iterdir()
        for record in tf.data.TFRecordDataset(str(file))
        for value in tf.compat.v1.Event.FromString(record.numpy()).summary.value
    }


@pytest.mark.parametrize(
    "metric",
    [
        "f1_score",
        keras.metrics.FBetaScore,
        "categorical_accuracy",
        keras.metrics.SparseCategoricalAccuracy(),
        keras.metrics.top_k_categorical_accuracy,
    ],
)
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_metric_of_the_largest_class_is_refused_for_one_number(metric, outputs):
    """Keras' F1 score would be that of a model which predicts 1 for each row, whatever it learns."""
    x = keras.Input((1,), name="x")
    names = ["is_0", "is_1"][:outputs]
    made = {name: keras.layers.Dense(1, "sigmoid")(x) for name in names}
    model = keras.Model({"x": x}, made if outputs > 1 else made["is_0"])
    labels = {name: FRAME[[name]].to_numpy() for name in names}
    data = ({"x": FRAME[["x"]].to_numpy()}, labels if outputs > 1 else labels["is_0"])
    with pytest.raises(TrainingError, match=r"single number for each row.*F1Score\(threshold"):
        train(model, data, metrics=[metric], optimizer="sgd")
    with pytest.raises(TrainingError, match=r"single number for each row.*binary_crossentropy"):
        train(model, data, loss="categorical_crossentropy", optimizer="sgd")
    metrics = [keras.metrics.F1Score(threshold=0.5), "accuracy"]
    report = train(model, data, metrics=metrics, optimizer=keras.optimizers.SGD(0.0))
    score = model(data[0])["is_0"] if outputs > 1 else model(data[0])
    wanted = f1_score(labels["is_0"][:, 0], score.numpy()[:, 0] > 0.5)
    name = "is_0_f1_score" if outputs > 1 else "f1_score"
    assert report.history[name] == pytest.approx([wanted])
