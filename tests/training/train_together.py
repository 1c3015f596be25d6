"""The program of each worker in test_workers.py: trains, and writes what it found as JSON."""

import json
import os
import signal
import sys
from pathlib import Path

import keras
import tensorflow as tf

from loader import KerasSequenceLoader
from training import TrainingError, compile_model, join_workers, models, optimizers, train

# Lists of ids, or single ids, whose lookups XLA compiles with the dense part.
CASES = {
    "sgd": (lambda: optimizers.SGD(0.5), True),
    "adagrad": (lambda: optimizers.Adagrad(0.1), True),
    "adam": (lambda: optimizers.Adam(0.05), True),
    "adam, single ids": (lambda: optimizers.Adam(0.05), False),
}
BATCH = 20
EPOCHS = 2


def make(lists, hidden=(8,)):
    ids = {"tags": ("int32", "int32")} if lists else {}
    sizes = ({"user": (9, 4)}, {"tags": (50, 4)}) if lists else ({"user": (9, 4)}, {})
    return models.mlp(sizes, ["age"], hidden=hidden, id_dtypes=ids)


def load(folder, lists, rank, size=2, batch=BATCH):
    names = ["user", "tags"] if lists else ["user"]
    return KerasSequenceLoader(
        str(folder), batch, ["label"], cat_names=names, cont_names=["age"], seed=3,
        global_size=size, global_rank=rank,
    )  # fmt: skip


def trained(model, data, optimizer, lists, workers):
    initial = [weight.tolist() for weight in model.get_weights()]
    if lists and isinstance(optimizer, optimizers.Adam):
        history = train(model, data, epochs=EPOCHS, optimizer=optimizer, workers=workers).history
    else:
        compile_model(model, optimizer, metrics=["auc"], xla=not lists, workers=workers)
        history = model.fit(data, epochs=EPOCHS, verbose=0, shuffle=False).history
    weights = [weight.tolist() for weight in model.get_weights()]
    return {"history": dict(history), "initial": initial, "weights": weights}


def refused(call):
    try:
        call()
    except TrainingError as error:
        return str(error)
    return "nothing"


class Death(keras.callbacks.Callback):
    """Kills the process in its second epoch."""

    def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002
        if epoch == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def main_until_one_dies(folder, result):
    """The last worker is killed. With fewer workers the checkpoint is resumed."""
    workers = join_workers()
    data = load(folder, True, workers.rank, workers.size)
    callbacks = [Death()] if workers.rank == 2 else []
    keras.utils.set_random_seed(0)
    model = make(True)

    def run():
        train(
            model, data, epochs=3, checkpoint=f"{result}-checkpoint", callbacks=callbacks,
            workers=workers,
        )  # fmt: skip

    error = refused(run)
    Path(f"{result}-{workers.size}-{workers.rank}").write_text(error)


def main(folder, result):
    workers = join_workers()
    rank = workers.rank
    found = {}
    for name, (optimizer, lists) in CASES.items():
        keras.utils.set_random_seed(rank)  # the first worker's weights count
        data = load(folder, lists, rank, workers.size)
        found[name] = trained(make(lists), data, optimizer(), lists, workers)
    found["ages"] = [float(v) for x, _ in data for v in x["age"].numpy()[:, 0]]

    other = make(True, hidden=(8 + rank,))
    data = load(folder, True, rank, workers.size)
    found["model"] = refused(lambda: train(other, data, workers=workers))
    found["optimizer"] = refused(
        lambda: train(make(True), data, optimizer=optimizers.SGD(0.1 + rank), workers=workers)
    )
    shorter = load(folder, True, rank, workers.size, BATCH + rank)
    found["batch_size"] = refused(lambda: train(make(True), shorter, workers=workers))
    alone = load(folder, True, 0, 1 if rank else 2)
    found["steps"] = refused(lambda: train(make(True), alone, workers=workers))
    found["epochs"] = refused(lambda: train(make(True), data, epochs=1 + rank, workers=workers))
    found["split"] = refused(lambda: train(make(True), data, split=False, workers=workers))

    # Last, since TensorFlow cannot exchange anything after a step that failed.
    model = make(False)
    compile_model(model, optimizers.SGD(0.1), workers=workers)
    uneven = tf.data.Dataset.from_tensors(
        (
            {"user": tf.zeros([4 + rank, 1], tf.int32), "age": tf.zeros([4 + rank, 1])},
            tf.zeros([4 + rank, 1]),
        )
    )
    found["rows"] = refused(lambda: model.fit(uneven, verbose=0, shuffle=False))
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
