"""Programs of the workers of test_workers.py: each trains, and returns its findings for JSON."""

import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path

import keras
import numpy as np
import polars as pl
import tensorflow as tf
from worker_processes import PATIENCE

from loader import KerasSequenceLoader, LoaderCheckpoint, LoaderError
from training import TrainingError, compile_model, join_workers, models, optimizers, train
from training.parallel import failures
from training.parallel import workers as joining
from training.parallel.devices import Device, expect_alike
from training.parallel.meeting import is_there
from training.private import expect_peer
from training.split import exchange

# Lists of ids; or single ids, whose lookups XLA compiles with the dense part.
# Adam divides by a gradient's size: with less epsilon it enlarges the rounding of gradients near zero.
CASES = {
    "lists": lambda: optimizers.Adam(0.05, epsilon=1e-3),
    "single ids": lambda: optimizers.Adagrad(0.1),
    "two outputs": lambda: optimizers.SGD(0.1),
}
# What `compile_model` is given of losses and metrics, and the names of the latter.
MEASURED = {
    "lists": ({"metrics": ["auc"]}, ["auc"]),
    "single ids": ({}, []),
    "two outputs": (
        {
            "loss": {"label": "binary_crossentropy", "age": "mse"},
            "loss_weights": {"label": 1.0, "age": 0.3},
            "metrics": {"age": ["mae"]},
            "weighted_metrics": {"age": ["mse"]},
        },
        ["label_loss", "age_loss", "age_mae", "age_mse"],
    ),
}
BATCH = 20
EPOCHS = 2


def two_outputs(model, clicked, number):
    """A model like one of a single output, with a probability and a number."""
    hidden = model.layers[-2].output
    outputs = {
        clicked: keras.layers.Dense(1, "sigmoid")(hidden),
        number: keras.layers.Dense(1)(hidden),
    }
    return keras.Model(model.input, outputs)


def make(case, hidden=(8,), **options):
    if case == "two outputs":
        shared = models.mlp({"user": (9, 4)}, hidden=hidden, **options)
        return two_outputs(shared, "label", "age")
    ids = {"tags": ("int32", "int32")} if case == "lists" else {}
    sizes = ({"user": (9, 4)}, {"tags": (50, 4)} if case == "lists" else {})
    return models.mlp(sizes, ["age"], hidden=hidden, id_dtypes=ids, **options)


def load(rows, case, rank, size, batch=BATCH, *, seed=3, **options):
    names = ["user", "tags"] if case == "lists" else ["user"]
    labels, numbers = ["label"], ["age"]
    if case == "two outputs":
        labels, numbers = ["label", "age"], []
        options["sample_weight"] = "weight"
    return KerasSequenceLoader(
        str(rows), batch, labels, cat_names=names, cont_names=numbers, seed=seed,
        global_size=size, global_rank=rank, **options,
    )  # fmt: skip


def weights_of(model):
    return [weight.tolist() for weight in model.get_weights()]


def refused(call):
    try:
        call()
    except (TrainingError, LoaderError) as error:
        return str(error)
    return "nothing"


def trained(case, rows, workers):
    keras.utils.set_random_seed(workers.rank)  # the first worker's weights count
    data, model, optimizer = load(rows, case, workers.rank, workers.size), make(case), CASES[case]()
    optimizer.build(model.trainable_variables)
    optimizer.iterations.assign(100 * workers.rank)  # so does the optimizer's state
    initial = weights_of(model)
    if case != "single ids":
        own = load(rows, case, workers.rank, workers.size)  # of which the first worker's counts
        settings = MEASURED[case][0]
        report = train(
            model, data, own, epochs=EPOCHS, optimizer=optimizer, workers=workers, **settings
        )
        history = report.history
    else:
        compile_model(
            model,
            optimizer,
            workers=workers,
            **MEASURED[case][0],
            steps_per_execution=3,
            xla=workers.size > 2,  # compiling takes seconds
        )
        history = model.fit(data, epochs=EPOCHS, verbose=0, shuffle=False).history
    return {"history": dict(history), "initial": initial, "weights": weights_of(model)}


def joined_and_different(rows):
    """Train as one; then with settings that differ, and last with a worker that has no rows."""
    workers = join_workers(PATIENCE)
    exchange.BYTES_OF_A_PIECE = 100  # Dense gradients travel in several pieces, as large ones do.
    found = {case: trained(case, rows, workers) for case in CASES}
    data = load(rows, "lists", workers.rank, workers.size)
    found["ages"] = [float(v) for x, _ in data for v in x["age"].numpy()[:, 0]]
    found["moving"] = moving(workers)
    found["repeated"] = repeated(workers)
    threads = [task.read_text() for task in Path("/proc/self/task").glob("*/comm")]
    found["threads"] = sum(name.startswith("collective") for name in threads)
    found["refused"] = different(rows, workers)
    found["unlike"] = unlike(workers)
    # Last, since TensorFlow cannot exchange anything after a step that failed.
    found["refused"]["no rows"] = refused(lambda: fit_rows(workers, 0 if workers.rank else 4))
    return found


def numbers(rank):
    """Two batches of a worker."""
    return np.random.default_rng(rank).normal(rank, 1 + rank, (2, 5)).astype("float32")


def moving(workers):
    """Moving averages, beside a table that is not trained and whole numbers; batches that nobody counted."""
    inputs = {
        "user": keras.Input((1,), name="user", dtype="int64"),
        "age": keras.Input((1,), name="age"),
    }
    table = keras.layers.Embedding(1000, 4, trainable=False)
    both = keras.layers.Concatenate()(
        [keras.layers.Flatten()(table(inputs["user"])), inputs["age"]]
    )
    normalization = keras.layers.BatchNormalization(momentum=0.5)
    kept = keras.layers.Dropout(1e-12)(normalization(both))  # has the state of its random numbers
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(kept))
    compile_model(model, "sgd", workers=workers)

    def batches():
        for ages in numbers(workers.rank):
            users = np.arange(5)[:, np.newaxis]
            yield {"user": users, "age": ages[:, np.newaxis]}, np.ones([5, 1], "float32")

    data = tf.data.Dataset.from_generator(
        batches,
        output_signature=(
            {"user": tf.TensorSpec((None, 1), "int64"), "age": tf.TensorSpec((None, 1))},
            tf.TensorSpec((None, 1)),
        ),
    )
    sent = []
    total = workers.collectives.total
    vars(workers.collectives)["total"] = lambda tensor, number: (
        sent.append(tensor.shape.num_elements()),
        total(tensor, number),
    )[1]
    model.fit(data, epochs=2, verbose=0)
    del vars(workers.collectives)["total"]
    layer = [weight.tolist() for weight in normalization.get_weights()]
    return {"sent": sent, "mean": layer[2], "variance": layer[3], "weights": weights_of(model)}


def repeated(workers):
    """Numbers of rows sent in a step whose 60 ids have six values."""
    model = make("single ids")
    compile_model(model, "sgd", workers=workers)
    sent = []
    gathered = workers.collectives.gathered

    def recorded(tensor, *arguments):
        tf.numpy_function(lambda count: sent.append(int(count)), [tf.shape(tensor)[0]], [])
        return gathered(tensor, *arguments)

    vars(workers.collectives)["gathered"] = recorded
    x = {"user": tf.range(60)[:, tf.newaxis] % 6, "age": tf.zeros([60, 1])}
    model.fit(tf.data.Dataset.from_tensors((x, tf.ones([60, 1]))), verbose=0, shuffle=False)
    del vars(workers.collectives)["gathered"]
    return sent


def different(rows, workers):
    """The errors of workers that differ."""
    rank = workers.rank
    data = load(rows, "lists", rank, workers.size)
    odd = load(rows, "lists", rank, workers.size, BATCH + rank)
    alone = load(rows, "lists", 0, 1 if rank else 2)
    reseeded = load(rows, "lists", rank, workers.size, seed=3 + rank)
    other_file = Path(rows).with_name(f"other{rank}.parquet")
    older = pl.read_parquet(rows).with_columns(age=pl.col("age") + rank)
    older.write_parquet(other_file, row_group_size=32)
    replaced = load(other_file, "lists", rank, workers.size)
    reordered = load(rows, "lists", rank, workers.size, shuffle=rank > 0)
    other_fit = make("lists")
    for layer in other_fit.layers:
        if hasattr(layer, "fits"):
            layer.fits = {"user": f"digest {rank}"}
    other_layer = make("lists", dropout=0.5 if rank else 0.0)
    frozen = make("lists")
    frozen.layers[-1].trainable = rank == 0

    def run(model=None, data=data, **options):
        return refused(lambda: train(model or make("lists"), data, workers=workers, **options))

    def fit(*runs):
        model = make("lists")
        compile_model(model, "sgd", workers=workers)
        return refused(lambda: [model.fit(each, verbose=0, shuffle=False) for each in runs])

    begun = load(rows, "lists", rank, workers.size)
    if rank == 0:
        next(iter(begun))
    drawn = load(rows, "lists", rank, workers.size, seed=None, seed_fn=lambda: 5 + rank)
    whole = load(rows, "lists", 0, 1)

    return {
        "weights": run(make("lists", hidden=(8 + rank,))),
        "layers": run(other_layer),
        "frozen": run(frozen),
        "optimizer": run(optimizer=optimizers.SGD(0.1 + rank)),
        "batch_size": run(data=odd),
        "steps": run(data=alone),
        "seed": run(data=reseeded),
        "seed of rows in order": run(
            data=load(rows, "lists", rank, workers.size, shuffle=False, seed=rank)
        ),
        "order": run(data=reordered),
        "data": run(data=replaced),
        "fit": run(other_fit),
        "share": run(data=load(rows, "lists", 0, workers.size)),
        "shares": run(data=load(rows, "lists", rank, workers.size + 1)),
        "whole": run(data=whole),
        "begun": run(data=begun),
        "drawn seed": run(data=drawn),
        "seed of a mapped one": run(data=reseeded.map(unchanged)),
        "data of a repeated one": fit(replaced.repeat(2).map(unchanged).prefetch(1)),
        "all rows of a mapped one": run(data=whole.map(unchanged)),
        "first batches, of own choice": fit(whole.skip(2 * rank).take(2)),
        "share in fit": fit(load(rows, "lists", 0, workers.size).map(unchanged)),
        "seed in a second fit": fit(data, reseeded),
        "other data in fit": fit(data.map(unchanged) if rank else data.map(unchanged).shuffle(1)),
        "epochs": run(epochs=1 + rank),
        "split": run(split=False),
        "loss": run(loss=keras.losses.BinaryCrossentropy(reduction="sum")),
        "losses": run(loss=["binary_crossentropy", "mse"][rank % 2]),
        "loss_weights": run(loss_weights=[1.0 + rank]),
        "metrics": run(metrics=[["mae"], ["mse"]][rank % 2]),
        "largest": run(metrics=["mae", Largest(name="largest")]),
        "class_weight": run(class_weight={np.int64(1): 1.0 + rank}),
        "writes": run(checkpoint=LoaderCheckpoint(data, "unused")) if rank else "the first writes",
        "workers": refused(lambda: train(make("lists"), data, workers=workers.size)),
    }


@keras.saving.register_keras_serializable("tests")
class Largest(keras.metrics.Metric):
    """The largest error."""

    def __init__(self, **options):
        super().__init__(**options)
        self.most = self.add_variable((), "zeros", name="most")

    def update_state(self, y_true, y_pred, sample_weight=None):  # noqa: ARG002
        errors = keras.ops.abs(keras.ops.cast(y_true, y_pred.dtype) - y_pred)
        self.most.assign(keras.ops.maximum(self.most, keras.ops.max(errors)))

    def result(self):
        return self.most.value


class Slower(keras.callbacks.Callback):
    """Lowers the learning rate after the first epoch, as `ReduceLROnPlateau` does."""

    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002
        self.model.optimizer.learning_rate = 0.01


def slower_on_one(rows):
    """Train two epochs, where one worker alone has a callback that changes the learning rate."""
    workers = join_workers(PATIENCE)
    data = load(rows, "single ids", workers.rank, workers.size)
    callbacks = [Slower()] if workers.rank else []
    model = make("single ids")
    compile_model(model, optimizers.SGD(0.5), workers=workers)
    return refused(lambda: model.fit(data, epochs=2, verbose=0, callbacks=callbacks, shuffle=False))


def unchanged(x, y):
    return x, y


class ReadBetween(keras.callbacks.Callback):
    """Reads a batch after the first epoch."""

    def __init__(self, data):
        super().__init__()
        self.data = data

    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002
        next(iter(self.data))


def read_between_epochs(rows):
    """The first worker's loader is one epoch ahead from the second one on."""
    workers = join_workers(PATIENCE)
    data = load(rows, "lists", workers.rank, workers.size)
    callbacks = [] if workers.rank else [ReadBetween(data)]
    return refused(
        lambda: train(make("lists"), data, epochs=2, callbacks=callbacks, workers=workers)
    )


def unlike(workers):
    """Warnings where the last worker's GPU has another name, more memory, and a little more."""
    found = {}
    for case, other in (
        ("name", Device("GPU", "B", 80.0)),
        ("memory", Device("GPU", "A", 40.0)),
        ("driver", Device("GPU", "A", 79.0)),
    ):
        own = other if workers.rank == workers.size - 1 else Device("GPU", "A", 80.0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            expect_alike(workers, own)
        found[case] = [str(each.message) for each in caught]
    return found


def on_cpu_and_gpu():
    """The second worker says that it has a GPU."""
    if os.environ["TF_CONFIG"].endswith('"index": 1}}'):
        joining.own_device = lambda: Device("GPU", "NVIDIA H100", 81.6)
    return refused(join_workers)


def on_one_gpu():
    """Both workers say that they have the same GPU."""
    joining.own_device = lambda: Device("GPU", "NVIDIA H100", 81.6, "GPU-1")
    return refused(join_workers)


def fit_rows(workers, rows):
    """One batch of so many rows, or no batch."""
    model = make("single ids")
    compile_model(model, "sgd", workers=workers)
    data = tf.data.Dataset.from_tensors(
        (
            {"user": tf.zeros([rows, 1], tf.int32), "age": tf.zeros([rows, 1])},
            tf.zeros([rows, 1]),
        )
    )
    model.fit(data.take(min(rows, 1)), verbose=0, shuffle=False)


def unequal_rows():
    workers = join_workers(PATIENCE)
    return refused(lambda: fit_rows(workers, 4 + workers.rank))


def reduced_precision():
    """Few steps in 16 bits. In the first one only the second worker's gradients overflow."""
    workers = join_workers(PATIENCE)
    found = {}
    for precision in ("bfloat16", "float16"):
        keras.utils.set_random_seed(0)
        model = make("single ids")
        compile_model(model, "sgd", precision=precision, workers=workers)
        before = weights_of(model)
        changed, scales = [], []
        for step in range(3):
            overflows = precision == "float16" and step == 0 and workers.rank == 1
            x = {"user": tf.constant([[1]]), "age": tf.constant([[1e30 if overflows else 0.5]])}
            data = tf.data.Dataset.from_tensors((x, tf.ones([1, 1])))
            model.fit(data, verbose=0, shuffle=False)
            changed.append(weights_of(model) != before)
            scales.append(float(getattr(model.optimizer, "dynamic_scale", 1.0)))
        found[precision] = {"changed": changed, "scales": scales, "weights": weights_of(model)}
    found["weights of 16 bits"] = weights_of_16_bits(workers)
    return found


def weights_of_16_bits(workers):
    """Weights in bfloat16, which are the first worker's as each `fit` begins."""
    keras.utils.set_random_seed(workers.rank)
    keras.config.set_dtype_policy("bfloat16")
    try:
        model = make("single ids")
    finally:
        keras.config.set_dtype_policy("float32")
    compile_model(model, "sgd", workers=workers)
    x = {"user": tf.constant([[workers.rank]]), "age": tf.constant([[0.5]])}
    data = tf.data.Dataset.from_tensors((x, tf.ones([1, 1])))
    found = []
    for _ in range(2):
        model.fit(data, verbose=0, shuffle=False)
        found += [weight.astype("float32").tolist() for weight in model.get_weights()]
        if workers.rank:
            model.set_weights([0 * weight for weight in model.get_weights()])
    return found


def slow_first():
    """The first worker asks, long after the last operation of all, whether the other has ended."""
    failures.GRACE = 60  # on a busy machine the first one may come late
    workers = join_workers(PATIENCE)
    texts = workers.collectives.texts(str(workers.rank))
    if workers.rank == 0:
        time.sleep(3)
        expect_peer("worker", 1, 5)
    return texts


class Death(keras.callbacks.Callback):
    """Kills the process in its second epoch."""

    def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002
        if epoch == 1:
            os.kill(os.getpid(), signal.SIGKILL)


class Freezing(keras.callbacks.Callback):
    """Stops all threads of the process in its second epoch: to the others, a host that went off the network."""

    def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002
        if epoch == 1:
            os.kill(os.getpid(), signal.SIGSTOP)


class Pause(keras.callbacks.Callback):
    """Stops all threads of the process in its second epoch for some seconds, as a machine that is moved."""

    def __init__(self, seconds):
        super().__init__()
        self._seconds = seconds

    def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002
        if epoch == 1:
            subprocess.Popen(["sh", "-c", f"sleep {self._seconds}; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(1)  # who is missed is told with the next heartbeats


class Hanging(keras.callbacks.Callback):
    """Waits in its second epoch, until a file is there."""

    def __init__(self, file):
        super().__init__()
        self.file = Path(file)

    def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002
        while epoch == 1 and not self.file.exists():
            time.sleep(0.1)


def until_one_dies(rows, checkpoint):
    """The last worker is killed in the second epoch."""
    workers = join_workers()
    keras.utils.set_random_seed(0)
    data = load(rows, "lists", workers.rank, workers.size)
    callbacks = [Death()] if workers.rank == 2 else []
    return refused(
        lambda: train(
            make("lists"), data, epochs=EPOCHS, checkpoint=checkpoint, callbacks=callbacks,
            workers=workers,
        )
    )  # fmt: skip


def resumed(rows, checkpoint):
    """Train on; then with another model, and where only the first worker finds the checkpoint."""
    workers = join_workers(PATIENCE)

    def run(hidden=(8,), folder=checkpoint):
        data, model = load(rows, "lists", workers.rank, workers.size), make("lists", hidden)
        return refused(
            lambda: train(model, data, epochs=EPOCHS, checkpoint=folder, workers=workers)
        ), weights_of(model)

    error, weights = run()
    elsewhere = f"{checkpoint}-{workers.rank}" if workers.rank else checkpoint
    return {
        "error": error,
        "weights": weights,
        "other model": run(hidden=(9,))[0],
        "elsewhere": run(folder=elsewhere)[0],
    }


class Stop(keras.callbacks.Callback):
    """Ends the run of a worker after some steps, 7 for the midst of its second epoch."""

    def __init__(self, steps=7):
        super().__init__()
        self.steps = steps

    def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002
        if int(self.model.optimizer.iterations) == self.steps:
            raise KeyboardInterrupt


def stopped_within_an_epoch(rows, folder):
    """Train without a stop; then with one, and on."""
    workers = join_workers(PATIENCE)

    def run(name, *callbacks):
        keras.utils.set_random_seed(0)
        data = load(rows, "lists", workers.rank, workers.size)
        saver = LoaderCheckpoint(data, f"{folder}/{name}", 1, writes=workers.rank == 0)
        model = make("lists")
        report = train(
            model, data, epochs=3, metrics=["auc"], callbacks=callbacks, checkpoint=saver,
            workers=workers,
        )  # fmt: skip
        return {"history": dict(report.history), "weights": weights_of(model)}

    whole = run("whole")
    with suppress(KeyboardInterrupt):
        run("stopped", Stop())
    resumed = run("stopped")
    with suppress(KeyboardInterrupt):
        run("early", Stop(2))
    if workers.rank:
        folder = f"{folder}/not shared"
    return {"whole": whole, "resumed": resumed, "elsewhere": refused(lambda: run("early"))}


def several_classes():
    """Train and validate with a metric of a number for each class."""
    workers = join_workers(PATIENCE)
    keras.utils.set_random_seed(workers.rank)
    x = keras.Input((1,), name="x")
    model = keras.Model({"x": x}, keras.layers.Dense(3, "softmax")(x))
    random = np.random.default_rng(workers.rank)
    classes = np.arange(30) % 3
    features = {"x": (classes + random.normal(size=30)).astype("float32")[:, None]}
    data = tf.data.Dataset.from_tensor_slices((features, np.eye(3, dtype="float32")[classes]))
    report = train(
        model, data.batch(10), data.batch(10), epochs=2, loss="categorical_crossentropy",
        metrics=["f1_score"], workers=workers,
    )  # fmt: skip
    return {"samples": report.samples, **report.history}


def until_one_freezes(rows, rank):
    workers = join_workers()
    data = load(rows, "lists", workers.rank, workers.size)
    callbacks = [Freezing()] if workers.rank == int(rank) else []
    return refused(
        lambda: train(make("lists"), data, epochs=2, callbacks=callbacks, workers=workers)
    )


def paused_together(rows, timeout, seconds):
    """All are paused in the second epoch, and go on."""
    workers = join_workers(timeout=float(timeout))
    data = load(rows, "lists", workers.rank, workers.size)
    callbacks = [Pause(seconds)]
    return refused(
        lambda: train(make("lists"), data, epochs=15, callbacks=callbacks, workers=workers)
    )


def until_one_hangs(rows, result_of_first):
    workers = join_workers(timeout=20)
    data = load(rows, "lists", workers.rank, workers.size)
    callbacks = [Hanging(result_of_first)] if workers.rank else []
    return refused(
        lambda: train(make("lists"), data, epochs=2, callbacks=callbacks, workers=workers)
    )


def started_again():
    """The second worker is killed, and started again while the first one still runs."""
    workers = join_workers()
    if workers.rank:
        os.kill(os.getpid(), signal.SIGKILL)
    while is_there(workers.addresses[1]):
        time.sleep(0.1)
    config = os.environ["TF_CONFIG"].replace('"index": 0', '"index": 1')
    program = "import training; training.join_workers(timeout=5)"
    again = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"TF_CONFIG": config},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return again.stderr
