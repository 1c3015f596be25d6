import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from training import TrainingError, models, optimizers, train
from training.split.step import SplitStep

# Metrics and an optimizer that cost little, where no assertion is about them.
CHEAP = {"metrics": (), "optimizer": "sgd"}


@pytest.fixture
def model():
    """A model of one of the columns, which costs less, where no assertion is about lists."""
    keras.utils.set_random_seed(0)
    return models.mlp({"userId": (50, 8)}, hidden=(8,))


@pytest.fixture
def narrow(batches):
    """The batches with that column alone."""
    return lambda *sizes, **options: batches(*sizes, **options).map(
        lambda x, y: ({"userId": x["userId"]}, y)
    )


@pytest.fixture(scope="module")
def trained(make_model, batches):
    """A model that was trained for two epochs, and the report of that."""
    model = make_model()
    data = batches(1000, 84), batches(300, 128, seed=5000)
    return model, train(model, *data, epochs=2, optimizer=keras.optimizers.Adam(0.03))


def test_the_report_counts_every_row_and_learns(trained):
    model, report = trained
    assert isinstance(model.train_step, SplitStep)
    assert report.samples == 2000
    assert report.val_auc > 0.95
    assert report.loss_curve[-1] < 0.5 * report.loss_curve[0]
    assert len(report.history["val_loss"]) == 2
    assert set(report.history) == {"auc", "loss", "val_auc", "val_loss"}
    assert 0 < report.seconds < 120
    assert report.samples_per_second == pytest.approx(2000 / report.seconds)


def test_the_loss_curve_adds_up_to_the_epochs_losses(trained):
    _, report = trained
    assert len(report.loss_curve) == 24
    halves = np.reshape(report.loss_curve, (2, 12)).mean(axis=1)
    np.testing.assert_allclose(halves, report.history["loss"], rtol=1e-4)


def test_the_report_reads_as_a_table(trained):
    lines = str(trained[1]).splitlines()
    assert lines[0].startswith("2,000 samples in ")
    assert [line.split()[0] for line in lines[1:]] == ["auc", "loss", "val_auc", "val_loss"]


@pytest.mark.parametrize("split", [True, False], ids=["split", "keras"])
@pytest.mark.parametrize(
    "loss",
    [
        keras.losses.BinaryCrossentropy,
        pytest.param(keras.losses.BinaryFocalCrossentropy, marks=pytest.mark.long),
    ],
)
def test_the_usual_area_under_the_curve_of_arrays_is_that_of_logits_where_the_loss_takes_them(
    loss, split
):
    random = np.random.default_rng(0)
    x = random.normal(size=(4010, 3))
    y = random.random((4010, 1)) < 1 / (1 + np.exp(-x @ [[1.0], [2.0], [-1.0]]))
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    sgd = keras.optimizers.SGD(0.1)
    report = train(model, (x, y), (x, y), loss=loss(from_logits=True), optimizer=sgd, split=split)
    assert report.samples == 4010
    assert report.val_auc == pytest.approx(roc_auc_score(y, model(x).numpy()), abs=1e-3)


@pytest.mark.parametrize(
    ("name", "outputs", "message"),
    [
        ("user-id", ["click"], r"name of an input .*Received: 'user-id'\. Rename it"),
        ("class", ["click"], "Received: 'class'"),
        ("user", ["dense", "dense_1"], "a name for each of the model's outputs"),
    ],
)
def test_names_that_no_export_takes_are_said_before_the_training(name, outputs, message):
    given = keras.Input((1,), name=name)
    made = [keras.layers.Dense(1, "sigmoid", name=output)(given) for output in outputs]
    model = keras.Model({name: given}, made if made[1:] else made[0])
    rows = np.ones((8, 1), "float32")
    labels = [rows] * len(made) if made[1:] else rows
    with pytest.warns(UserWarning, match=f"The model cannot be exported as it is.*{message}"):
        assert train(model, ({name: rows}, labels), **CHEAP).samples == 8


def test_a_loss_that_is_no_number_ends_the_run(model, narrow):
    """Also with the usual metrics, which Keras cannot count of NaN."""
    dataset = narrow(640, 64).map(lambda x, y: (x, y * float("nan")))
    with pytest.raises(TrainingError, match=r"Received: nan at step 1 of epoch 1.*in the label"):
        train(model, dataset, epochs=3)


@pytest.mark.parametrize(
    ("spoilt", "advised", "unsaid"),
    [
        ({"rating"}, "drop_nulls", "FillMissing"),
        ({"age"}, "FillMissing", "drop_nulls"),
        ({"rating", "age"}, "drop_nulls.*FillMissing", "the weights"),
    ],
)
def test_a_label_that_is_missing_is_left_out_and_not_filled(spoilt, advised, unsaid):
    age = keras.Input((1,), name="age")
    model = keras.Model({"age": age}, keras.layers.Dense(1, "sigmoid")(age))
    values = {name: np.where(name in spoilt, np.nan, np.ones((8, 1))) for name in ("age", "rating")}
    with pytest.raises(TrainingError, match=advised) as caught:
        train(model, ({"age": values["age"]}, values["rating"]), **CHEAP)
    assert unsaid not in str(caught.value)


def test_a_run_that_diverges_is_told_what_to_do(model, narrow):
    with pytest.raises(TrainingError, match=r"at step [23] of epoch 1.*Lower the learning rate"):
        train(model, narrow(640, 64), metrics=(), optimizer=keras.optimizers.SGD(1e30))


def test_a_mean_over_an_empty_list_is_named_as_a_cause_of_nan():
    recent = keras.Input((3,), name="recent", dtype="int32")
    x = keras.layers.Embedding(9, 4, mask_zero=True)(recent)
    x = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model({"recent": recent}, keras.layers.Dense(1, "sigmoid")(x))
    rows = {"recent": np.array([[1, 2, 0], [0, 0, 0]])}, np.ones((2, 1), "float32")
    with pytest.raises(TrainingError, match="an empty list behind Embedding"):
        train(model, rows)


def test_no_room_is_told_with_sizes():
    """A batch whose vectors take 40 TB: of no machine."""
    model = keras.Sequential(
        [
            keras.Input((1,)),
            keras.layers.Dense(1),
            keras.layers.RepeatVector(10**7),
            keras.layers.GlobalAveragePooling1D(),
        ]
    )
    arrays = np.zeros((10**6, 1), "float32")
    data = tf.data.Dataset.from_tensors((arrays, arrays))
    with pytest.raises(TrainingError, match=r"weights take 0\.00 GB.*out of memory.*smaller batch"):
        train(model, data, **CHEAP)


def test_a_nan_can_be_let_through(model, narrow):
    dataset = narrow(128, 64).map(lambda x, y: (x, y * float("nan")))
    report = train(model, dataset, **CHEAP, stop_on_nan=False)
    assert np.isnan(report.history["loss"][0])


def test_a_nan_of_a_later_batch_is_found_with_its_column(model, narrow):
    calm, spoilt = narrow(128, 64), narrow(128, 64).map(lambda x, y: (x, y * float("nan")))
    with pytest.raises(
        TrainingError, match=r"NaN or infinity in batch 3 of an epoch, in the label"
    ):
        train(model, calm.concatenate(spoilt), **CHEAP)


def test_nan_that_a_relu_hides_is_found_in_the_weights():
    """On a CPU relu(NaN) is 0: the loss looks well, and the first layer's weights are lost."""
    features = {"age": np.ones((64, 1), "float32"), "userId": np.zeros((64, 1), "int32")}
    features["age"][7] = np.nan
    network = models.mlp({"userId": (50, 8)}, ["age"], hidden=(8,))
    with pytest.raises(TrainingError, match=r"Received: (NaN|nan).*first batch, in column 'age'"):
        train(network, tf.data.Dataset.from_tensors((features, np.ones((64, 1)))), **CHEAP)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras says so as well
def test_no_data_and_no_epochs_are_refused(model, narrow):
    with pytest.raises(TrainingError, match="at least one row"):
        train(model, tf.data.Dataset.take(narrow(64, 64), 0), **CHEAP)
    with pytest.raises(TrainingError, match=r"epochs as a whole number from 1\. Received: 0"):
        train(model, narrow(64, 64), epochs=0)
    with pytest.raises(TrainingError, match=r"to train\. Received: None"):
        train(None, narrow(64, 64))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 1.5}, "epochs as a whole number from 1. Received: 1.5"),
        ({"epochs": "2"}, "Received: '2'"),
        ({"steps_per_execution": 0}, "steps_per_execution as a whole number from 1"),
        ({"optimizer": None}, "an optimizer and a loss. Received: optimizer=None"),
        ({"callbacks": keras.callbacks.TerminateOnNaN()}, "callbacks as a list"),
        ({"callbacks": [keras.callbacks.TerminateOnNaN]}, "objects of keras.callbacks.Callback"),
        ({"metrics": "auc"}, "metrics as a list.*Received: 'auc'"),
        ({"loss": "crossentropy"}, "mean 'binary_crossentropy' or 'categorical_crossentropy'"),
        ({"loss": "MSEE"}, "Received: 'MSEE'. Usual are 'binary_crossentropy' or 'mean_squared_er"),
        ({"metrics": ["roc"]}, "Received: 'roc'. Usual are 'auc' or 'accuracy'."),
        ({"metrics": ["AUCC"]}, "Received: 'AUCC'. Did you mean 'auc'"),
        ({"metrics": ["acuracy"]}, "Did you mean 'accuracy' or '(?!accuracy')"),
        ({"metrics": ["Mean"]}, "Received: 'Mean'."),
        (
            {"metrics": ["mean_io_u"]},
            "the name of one that needs no arguments. Received: 'mean_io_u'",
        ),
        ({"metrics": [keras.metrics.Sum()]}, "compare labels with predictions. Received: <Sum"),
        ({"metrics": [None]}, "compare labels with predictions. Received: None"),
        ({"weighted_metrics": [keras.metrics.Mean()]}, "Expected weighted_metrics that compare"),
        ({"optimizer": "rms_prop"}, "Received: 'rms_prop'. Did you mean 'rmsprop'"),
    ],
)
def test_settings_that_make_no_sense(model, narrow, options, message):
    with pytest.raises(TrainingError, match=message):
        train(model, narrow(64, 64), **options)


def test_settings_may_be_numbers_of_numpy(model, narrow):
    """Weights as scikit-learn computes them, and counts as maxima of a column are."""
    labels, counts = np.array([0, 1]), np.array([48, 16])
    balanced = dict(zip(labels, (counts.sum() / (2 * counts)).astype("float32"), strict=True))
    found = []
    for number, weights in ((int, {0: 2 / 3, 1: 2.0}), (np.int64, balanced)):
        network = keras.models.clone_model(model)
        network.set_weights(model.get_weights())
        data = narrow(64, 16)
        settings = {"epochs": number(2), "patience": number(2), "steps_per_execution": number(2)}
        report = train(network, data, data, class_weight=weights, **CHEAP, **settings)
        assert report.samples == 128
        found.append(network.get_weights())
    for own, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, own, rtol=1e-6, atol=1e-7)


def test_a_folder_that_cannot_be_made_is_told_before_an_epoch(model, narrow, tmp_path):
    (tmp_path / "logs").write_text("a file")
    steps = []
    counter = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, _: steps.append(batch)
    )
    with pytest.raises(TrainingError, match="tensorboard as a folder to write to"):
        train(model, narrow(64, 64), tensorboard=tmp_path / "logs", callbacks=[counter])
    assert not steps


def test_curves_are_not_written_beside_the_store_that_was_meant(
    model, narrow, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TrainingError, match=r"path of this machine\. Received: 's3://shop/logs'"):
        train(model, narrow(64, 64), tensorboard="s3://shop/logs")
    assert [*tmp_path.iterdir()] == []


def test_patience_ends_the_run_with_the_best_weights(model, narrow):
    labels = tf.random.Generator.from_seed(0)
    noise = narrow(256, 64).map(lambda x, y: (x, tf.round(labels.uniform(tf.shape(y)))))
    report = train(
        model, noise, narrow(256, 64, seed=9000), epochs=30, optimizer=keras.optimizers.Adam(0.1),
        patience=2, metrics=(),
    )  # fmt: skip
    losses = report.history["val_loss"]
    assert 3 <= len(losses) < 30
    best = model.evaluate(narrow(256, 64, seed=9000), verbose=0)
    assert best == pytest.approx(min(losses), rel=1e-4)


@pytest.mark.parametrize("split", [True, False])
def test_rows_that_a_callback_evaluates_within_an_epoch_are_not_counted(model, narrow, split):
    valid = narrow(64, 64)

    class Evaluates(keras.callbacks.Callback):
        def on_train_batch_end(self, *_, **__):
            self.model.evaluate(valid, verbose=0)

    report = train(model, narrow(128, 64), **CHEAP, split=split, callbacks=[Evaluates()])
    assert report.samples == 128


@pytest.mark.parametrize(
    "options",
    [{"patience": 3}, *({"patience": value, "validation_data": True} for value in (0, "2"))],
)
def test_early_stopping_needs_something_to_look_at(model, narrow, options):
    if options.get("validation_data"):
        options = {**options, "validation_data": narrow(64, 64)}
    with pytest.raises(TrainingError, match="validation_data and a patience"):
        train(model, narrow(64, 64), **options)


@pytest.mark.parametrize("own", [True, False])
def test_weights_are_not_restored_where_their_average_is_validated(model, narrow, own):
    stopping = keras.callbacks.EarlyStopping("val_loss", restore_best_weights=True)
    options = {"callbacks": [stopping]} if own else {"patience": 1, "callbacks": []}
    options["callbacks"].append(keras.callbacks.SwapEMAWeights())
    averaging = keras.optimizers.SGD(0.1, use_ema=True)
    with pytest.raises(TrainingError, match=r"no SwapEMAWeights beside patience"):
        train(model, narrow(64, 64), narrow(64, 64), optimizer=averaging, **options)


def test_validated_ids_are_named_and_the_model_is_as_before(make_model, batches, rows):
    model = make_model()

    def beyond(x, y):
        return {**x, "movieId": x["movieId"] + 20}, y

    broken = batches(128, 64).map(beyond)
    with pytest.raises(TrainingError, match=r"ids of column movieId in 0 \.\. 39.*: \d+ \.\. 5\d$"):
        train(model, broken, **CHEAP, validate_ids=True)
    model.fit(broken, verbose=0, shuffle=False)
    assert np.isfinite(model(rows(5).features)).all()


def test_an_id_that_a_cast_would_make_another_is_named(model, narrow):
    """2**32 + 5 is 5 as int32, which is a good id, of someone else."""
    wide = narrow(64, 64).map(
        lambda x, y: ({**x, "userId": tf.cast(x["userId"], tf.int64) + 2**32}, y)
    )
    with pytest.raises(
        TrainingError, match=r"fit into int32,.* in column userId\..*: \d+ \.\. 42949673"
    ):
        train(model, wide, **CHEAP, validate_ids=True)
    good = narrow(64, 64)
    with pytest.raises(
        TrainingError, match=r"fit into int32,.* in column userId\..*: \d+ \.\. 42949673"
    ):
        train(model, good, wide, **CHEAP, validate_ids=True)
    assert train(model, good, good, **CHEAP, validate_ids=True).samples == 64


@pytest.mark.parametrize("precision", [pytest.param("float32", marks=pytest.mark.long), "bfloat16"])
def test_the_split_step_learns_as_well(model, narrow, precision):
    report = train(
        model,
        narrow(1000, 64),
        narrow(300, 128, seed=5000),
        epochs=3,
        optimizer=optimizers.Adam(0.03),
        split=True,
        precision=precision,
        steps_per_execution=4,
    )
    assert report.samples == 3000
    assert report.val_auc > 0.95
    assert isinstance(model.train_step, SplitStep)


def test_the_step_is_not_split_where_it_cannot_be(batches):
    user = keras.Input((1,), name="userId", dtype="int32")
    vectors = keras.layers.Embedding(50, 8, embeddings_regularizer="l2")(user)
    regularized = keras.Model(
        {"userId": user}, keras.layers.Dense(1, "sigmoid")(keras.layers.Flatten()(vectors))
    )
    dataset = batches(64, 64).map(lambda x, y: ({"userId": x["userId"]}, y))
    report = train(regularized, dataset, **CHEAP)
    assert report.samples == 64
    assert not isinstance(regularized.train_step, SplitStep)


def test_a_trained_model_is_saved_and_loaded_by_keras(trained, batches, tmp_path):
    model, _ = trained
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert set(loaded.evaluate(batches(64, 64), verbose=0, return_dict=True)) == {"auc", "loss"}
    assert set(model.evaluate(batches(64, 64), verbose=0, return_dict=True)) == {"auc", "loss"}


def test_a_plain_model_is_loaded_without_this_package(tmp_path, monkeypatch):
    """The metrics that `train` adds must not stay in the model."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, "sigmoid")])
    train(model, (np.zeros((8, 2)), np.zeros((8, 1))), optimizer=keras.optimizers.Adam())
    model.save(tmp_path / "model.keras")
    for name in [name for name in sys.modules if name.split(".")[0] == "training"]:
        monkeypatch.setitem(sys.modules, name, None)  # as where it is not installed
    known = keras.saving.get_custom_objects()
    for name in [*known]:
        monkeypatch.delitem(known, name)
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for own, other in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(own, other)
