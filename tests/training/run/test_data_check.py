"""Data that is not what the model takes is told apart before a step is taken."""

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from loader import KerasSequenceLoader, LoaderError
from training import TrainingError, compile_model, models, optimizers, train
from training.run.data_check import check_data

# Metrics and an optimizer that cost little, where no assertion is about them.
CHEAP = {"metrics": [], "optimizer": "sgd"}


@pytest.fixture
def small():
    """A model of one column, and the batches of it, which cost less to train."""
    keras.utils.set_random_seed(0)
    return models.mlp({"userId": (50, 4)}, hidden=(4,))


@pytest.fixture
def narrow(batches):
    return lambda *sizes: batches(*sizes).map(lambda x, y: ({"userId": x["userId"]}, y))


def changed(**columns):
    """Features and labels with other columns than the model's."""
    return lambda x, y: ({k: v for k, v in {**x, **columns}.items() if v is not None}, y)


MISTAKES = {
    r"missing: movieId\. Tag them in the workflow": changed(movieId=None),
    # Keras would take `aaa` for the first of its inputs, and so on, with a warning alone.
    r"Received also: aaa\. Make a model.*output_schema.*cat_names": lambda x, y: (
        {**x, "aaa": x["userId"]},
        y,
    ),
    r"'userId' of train_data to be of int32.*Received: float32": lambda x, y: (
        {**x, "userId": tf.cast(x["userId"], tf.float32)},
        y,
    ),
    r"'userId' of train_data to be of int32.*Received: string": lambda x, y: (
        {**x, "userId": tf.as_string(x["userId"])},
        y,
    ),
    r"the values of column 'genres'.*of int64.*Received: float32": lambda x, y: (
        {**x, "genres": (tf.cast(x["genres"][0], tf.float32), x["genres"][1])},
        y,
    ),
    r"Expected a list in column 'genres'.*Received: single values": lambda x, y: (
        {**x, "genres": x["genres"][1]},
        y,
    ),
    r"Expected a list in column 'genres'.*Received: 3 values a row\. A loader pads": lambda x, y: (
        {**x, "genres": tf.tile(x["genres"][1], [1, 3])},
        y,
    ),
    r"Expected single values in column 'userId'.*Received: a list": lambda x, y: (
        {**x, "userId": x["genres"]},
        y,
    ),
    r"'userId' of train_data of shape \(rows, 1\).*Received: \(rows, 3\)": lambda x, y: (
        {**x, "userId": tf.tile(x["userId"], [1, 3])},
        y,
    ),
    r"features and labels.*label_names": lambda x, _: x,
    r"one label in train_data.*Received: 2": lambda x, y: (x, {"rating": y, "click": y}),
    r"numbers as labels.*Received: strings": lambda x, y: (x, tf.as_string(y)),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_named(message, model, batches):
    before = [weights.copy() for weights in model.get_weights()]
    with pytest.raises(TrainingError, match=message):
        train(model, batches(64, 64).map(MISTAKES[message]))
    for own, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(own, other)


def test_a_list_for_a_padded_input_says_how_a_loader_pads():
    recent = keras.Input((20,), name="recent", dtype="int64")
    score = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(9, 2)(recent))
    model = keras.Model({"recent": recent}, keras.layers.Dense(1, "sigmoid")(score))
    rows = pl.DataFrame({"recent": [[3, 4], [5]], "label": [0, 1]})
    loader = KerasSequenceLoader(rows, 2, cat_names=["recent"], label_names=["label"])
    message = (
        r"Expected 20 values a row in column 'recent'.*Received: a list\. A loader pads "
        r'lists with sparse_names=\["recent"\], sparse_as_dense=True\.'
    )
    with pytest.raises(TrainingError, match=message):
        train(model, loader)


def test_validation_data_is_looked_at_as_well(model, batches):
    with pytest.raises(TrainingError, match=r"in validation_data.*missing: userId"):
        train(model, batches(64, 64), batches(64, 64).map(changed(userId=None)))


FRAME = pl.DataFrame({"userId": [1, 2], "rating": [0, 1]})
ONES = np.ones((4, 1))


@pytest.mark.parametrize(
    "data",
    [
        None,
        "train/*.parquet",
        5,
        FRAME,
        FRAME.lazy(),
        FRAME["rating"],
        FRAME.to_arrow(),
        FRAME.to_pandas(),
        FRAME.to_dict(),
        ONES,
        [1, 2],
        (),
        (ONES,) * 4,
        iter([(ONES, ONES)]),
    ],
    ids=lambda data: type(data).__name__,
)
def test_what_is_no_data_is_refused(model, data):
    message = rf"as a KerasSequenceLoader.*Received: {type(data).__name__}\..*Polars frame: Keras"
    with pytest.raises(TrainingError, match=message):
        train(model, data)
    with pytest.raises(TrainingError, match=message if data is not None else "validation_data"):
        check_data(model, data, "validation_data", {"": "mse"})


def test_data_without_end_is_refused(small, narrow):
    message = r"Expected {} with an end.*data\.take\(steps\).*steps_per_epoch"
    with pytest.raises(TrainingError, match=message.format("train_data")):
        train(small, narrow(64, 64).repeat())
    with pytest.raises(TrainingError, match=message.format("validation_data")):
        train(small, narrow(64, 64), narrow(64, 64).repeat())
    assert train(small, narrow(64, 64).repeat().take(2), **CHEAP).samples == 128


def test_a_callback_may_end_data_without_end(small, narrow):
    class Enough(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002
            self.model.stop_training = batch == 2

    assert train(small, narrow(64, 64).repeat(), callbacks=[Enough()], **CHEAP).samples == 192


class Squares(keras.utils.PyDataset):
    num_batches = 2

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def __getitem__(self, number):
        return {"userId": np.full((4, 1), number, self.dtype)}, np.ones((4, 1))


def test_other_kinds_of_data_are_looked_at_too():
    model = models.mlp({"userId": (50, 4)}, hidden=(4,))
    assert train(model, Squares("int64"), **CHEAP).samples == 8
    with pytest.raises(TrainingError, match="Received: float32"):
        train(model, Squares("float32"))
    with pytest.raises(TrainingError, match="Received: float64"):
        train(model, ({"userId": np.ones((4, 1))}, np.ones((4, 1))))
    with pytest.raises(TrainingError, match=r"of int32, .* Received: string"):
        train(model, ({"userId": np.array([["7"], ["8"]])}, np.ones((2, 1))))


@pytest.mark.parametrize(
    ("ids", "received"),
    [
        (np.array([[5], [2**32 + 5]]), "5 to 4294967301"),
        (np.array([[2**63], [7]], "uint64"), "7 to 9223372036854775808"),
    ],
)
def test_ids_of_arrays_that_a_cast_would_make_others_are_refused(small, ids, received):
    """2**32 + 5 is 5 as int32, which is a good id, of someone else."""
    good, labels = {"userId": np.array([[5], [-1]])}, np.ones((2, 1))
    with pytest.raises(
        TrainingError, match=rf"into int32,.* 'userId' of train_data.*: {received}\."
    ):
        train(small, ({"userId": ids}, labels), **CHEAP)
    with pytest.raises(TrainingError, match=f"of validation_data.*{received}"):
        train(small, (good, labels), ({"userId": ids}, labels), **CHEAP)
    assert train(small, (good, labels), **CHEAP).samples == 2


def test_values_of_lists_that_a_cast_would_make_others_are_refused():
    model = models.mlp(({}, {"tags": (9, 4)}), id_dtypes={"tags": ("uint8", "int64")}, hidden=(4,))
    tags = (np.array([[3], [259]]), np.array([[1], [1]]))
    with pytest.raises(
        TrainingError, match=r"into uint8,.* in the values of column 'tags'.*3 to 259"
    ):
        train(model, ({"tags": tags}, np.ones((2, 1))), **CHEAP)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adm"}, r"optimizer.*'adm'.*'adam'"),
        ({"loss": "binary_cross_entropy"}, r"loss.*Did you mean 'binary_crossentropy"),
        ({"metrics": ["crossentropy"]}, r"metric.*Did you mean 'binary_crossentropy"),
        (
            {"metrics": [keras.metrics.AUC(name="loss")]},
            r"other names than that of the loss.*name=",
        ),
        ({"weighted_metrics": ["acurracy"]}, r"metric.*'acurracy'.*Did you mean 'accuracy"),
        ({"weighted_metrics": "auc"}, r"weighted_metrics as a list.*Received: 'auc'"),
        ({"metrics": ["auc", "acurracy"]}, r"metric.*'acurracy'.*Did you mean 'accuracy"),
    ],
)
def test_a_name_that_keras_does_not_know(model, batches, options, message):
    with pytest.raises(TrainingError, match=message):
        train(model, batches(64, 64), **options)


def test_ratings_are_no_labels_for_cross_entropy(small, narrow):
    """Stars as they are: the loss falls below zero, and nothing else would tell."""
    stars = narrow(640, 64).map(lambda x, y: (x, 1 + 4 * y))
    with pytest.raises(TrainingError, match=r"labels from 0 to 1.*rating > 3"):
        train(small, stars, epochs=3, **CHEAP)


@pytest.mark.parametrize("split", [None, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize(("label", "is_validation"), [(3, False), (-1, False), (7, True)])
def test_a_class_that_the_output_does_not_have_is_named(small, narrow, label, is_validation, split):
    classes = keras.Model(small.input, keras.layers.Dense(3, "softmax")(small.output))
    good = narrow(64, 32).map(lambda x, y: (x, tf.ones_like(y)))
    wrong = narrow(64, 32).map(lambda x, y: (x, tf.fill(tf.shape(y), label)))
    data = (good, wrong) if is_validation else (wrong,)
    with pytest.raises(TrainingError, match=rf"labels from 0 to 2.*3 classes. Received: {label}\."):
        train(classes, *data, loss="sparse_categorical_crossentropy", split=split, **CHEAP)


@pytest.mark.parametrize("split", [True, False])
def test_metrics_are_those_named_and_not_those_of_an_earlier_run(small, narrow, split):
    """Keras' own `compile` keeps them where the next call names none."""
    model, data = small, narrow(64, 64)
    settings, before = {"optimizer": "sgd", "split": split}, ["accuracy"]
    report = train(model, data, metrics=["mae", "accuracy"], **settings)
    assert set(report.history) == {"mae", "accuracy", "loss"}
    assert set(train(model, data, loss="mean_squared_error", **settings).history) == {"loss"}
    compile_model(model, **settings, metrics=before)
    assert set(train(model, data, metrics=[], **settings).history) == {"loss"}
    compile_model(model, **settings, metrics=before)
    compile_model(model, **settings)
    assert set(model.evaluate(data, return_dict=True, verbose=0)) == {"loss"}


def test_rare_positives_can_count_for_more(small, narrow, rows):
    """With one label in twenty positive, a weight of 20 lifts the mean prediction to a half."""
    generator = tf.random.Generator.from_seed(0)
    rare = narrow(2000, 100).map(
        lambda x, y: (x, tf.cast(generator.uniform(tf.shape(y)) < 0.05, tf.float32))
    )
    means = []
    for class_weight in (None, {0: 1.0, 1: 19.0}):
        network = keras.models.clone_model(small)
        train(
            network,
            rare,
            epochs=3,
            optimizer=optimizers.SGD(1.0),
            class_weight=class_weight,
            metrics=[],
        )
        means.append(float(tf.reduce_mean(network({"userId": rows(500).features["userId"]}))))
    assert means[0] < 0.15
    assert 0.35 < means[1] < 0.65


@pytest.mark.parametrize(
    "class_weight",
    [{}, {1: -2.0}, {"yes": 2.0}, [1.0, 2.0], {0: 1.0, 1: float("nan")}, {1: float("inf")}],
)
def test_weights_that_make_no_sense(model, batches, class_weight):
    with pytest.raises(TrainingError, match="class_weight as a dictionary of label -> finite"):
        train(model, batches(64, 64), class_weight=class_weight)


def test_weights_for_rows_that_have_some(model, batches):
    weighted = batches(64, 64).map(lambda x, y: (x, y, y))
    with pytest.raises(TrainingError, match="which have weights already"):
        train(model, weighted, class_weight={1: 2.0})


def test_a_damaged_file_is_the_loaders_error(tmp_path):
    path = tmp_path / "rows.parquet"
    count = 20_000
    user = np.random.default_rng(0).integers(0, 50, count).astype("int32")
    pl.DataFrame({"userId": user, "label": (user % 2).astype("int8")}).write_parquet(
        path, row_group_size=2000
    )
    loader = KerasSequenceLoader(
        path, 500, ["label"], cat_names=["userId"], cont_names=[], shuffle=False, buffer_size=20_000
    )
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 500] = b"\x07" * 500
    path.write_bytes(content)
    with pytest.raises(LoaderError, match=r"row group \d+.*rows\.parquet|rows\.parquet.*row group"):
        train(models.mlp({"userId": (50, 4)}, hidden=(4,)), loader, **CHEAP)


class Nothing(keras.utils.PyDataset):
    """Data without a batch."""

    num_batches = 0

    def __getitem__(self, index):
        raise IndexError(index)


def no_rows_of(features, labels):
    data = tf.data.Dataset.from_tensor_slices((features, labels)).batch(16)
    return {
        "arrays": ({name: column[:0] for name, column in features.items()}, labels[:0]),
        "taken": data.take(0),
        "filtered": data.filter(lambda *_: False),
        "PyDataset": Nothing(),
    }


@pytest.mark.parametrize("argument", ["train_data", "validation_data"])
@pytest.mark.parametrize("kind", ["arrays", "taken", "filtered", "PyDataset"])
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_data_without_rows_is_refused(kind, argument):
    features = {"age": np.linspace(0, 1, 64, dtype="float32")[:, None]}
    labels = (features["age"] > 0.3).astype("float32")
    network = models.mlp({}, ["age"], hidden=(4,))
    data = {"train_data": (features, labels), "validation_data": (features, labels)}
    data[argument] = no_rows_of(features, labels)[kind]
    with pytest.raises(TrainingError, match=f"{argument} with at least one row.*none"):
        train(network, **data, **CHEAP)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_validation_data_without_rows_is_refused_where_nothing_is_left_to_train(tmp_path):
    frame = pl.DataFrame({"age": np.linspace(0, 1, 64, dtype="float32"), "old": [0, 1] * 32})
    network = models.mlp({}, ["age"], hidden=(4,))
    loader = KerasSequenceLoader(frame, 16, ["old"], cont_names=["age"], device="cpu")
    train(network, loader, checkpoint=tmp_path, **CHEAP)
    empty = loader.as_dataset().filter(lambda *_: False)
    with pytest.raises(TrainingError, match="validation_data with at least one row"):
        train(network, loader, empty, checkpoint=tmp_path, **CHEAP)
