"""Programs of the workers of test_gpu_workers.py, each with a GPU of its own, and their start."""

import json
import os
import signal
import time
from functools import partial

import keras
import numpy as np
import tensorflow as tf
import worker_processes
from train_together import refused, two_outputs

from loader import KerasSequenceLoader, LoaderError
from training import TrainingError, compile_model, join_workers, models, optimizers, train
from training import whole_tables as whole
from training.split import table_gradient

BATCH, STEPS, EPOCHS = 256, 3, 2
# 26 columns would do no more than three: one smaller than a batch, one larger, one out of range.
SIZES = {"city": (7, 8), "user": (5000, 8), "item": (900, 8)}
LISTS = {"tags": (300, 8), "days": (7, 8)}
# Rows of columns whose gradients are summed by row before they travel: "city", "days", not the others.
SMALL = 100
# Accumulators start so low that every gradient shows. Adam divides by a gradient's size: with less epsilon it
# enlarges the rounding of gradients near zero.
OPTIMIZERS = {
    "sgd": lambda: optimizers.SGD(0.5),
    "momentum": lambda: optimizers.SGD(0.1, momentum=0.9),
    "adagrad": lambda: optimizers.Adagrad(0.05, initial_accumulator_value=1e-4),
    "adam": lambda: optimizers.Adam(0.01, epsilon=1e-3),
}
CASES = {
    f"{shard or 'none'}, {kind}, {name}": (shard, kind, name)
    for shard, kind, name in (
        (None, "ids", "sgd"),
        (None, "ids", "momentum"),
        (None, "ids", "adagrad"),
        (None, "ids", "adam"),
        (None, "lists", "adam"),
        (None, "two outputs", "adagrad"),
        ("row", "two outputs", "sgd"),
        ("auto", "lists", "adagrad"),
        ("auto", "ids", "adam"),
        ("table", "ids", "adagrad"),
        ("row", "ids", "sgd"),
        ("row", "lists", "adam"),
        ("column", "ids", "adam"),
    )
}


def start(size, folder, program, *arguments):
    """Processes that run a function, each with the GPU of its number."""
    return worker_processes.start(size, folder, partial(with_own_gpu, program), *arguments)


def with_own_gpu(program, *arguments):
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    if os.environ.get("TEST_DEVICE") == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # not every host lets NCCL multicast
    # Products of all 32 bits, since batches of other sizes are compared.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return program(*arguments)


def joined_on_first_gpu():
    """The error of a worker that shares a GPU with the others."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    return refused(join_workers)


def make(shard, kind):
    lists = LISTS if kind == "lists" else {}
    dtypes = dict.fromkeys(SIZES, "int32") | dict.fromkeys(lists, ("int32", "int32"))
    model = models.mlp((SIZES, lists), ["age"], hidden=(16, 8), id_dtypes=dtypes, shard=shard)
    return two_outputs(model, "clicked", "paid") if kind == "two outputs" else model


def batch_of(kind, rank, step):
    """Features and labels; the ids of one column are mostly few, and some are unknown."""
    random = np.random.default_rng([rank, step])
    x = {
        "city": random.integers(0, 7, (BATCH, 1)),
        "user": random.integers(0, 5000, (BATCH, 1)),
        "item": random.zipf(1.2, (BATCH, 1)) % 1000,
    }
    if kind == "lists":
        for name, (height, _) in LISTS.items():
            lengths = random.integers(0, 4, (BATCH, 1))
            x[name] = (random.integers(0, height, (lengths.sum(), 1)), lengths)
    x = tf.nest.map_structure(lambda part: tf.constant(part, tf.int32), x)
    x["age"] = tf.constant(random.normal(size=(BATCH, 1)), tf.float32)
    label = tf.constant(random.integers(0, 2, (BATCH, 1)), tf.float32)
    return x, {"clicked": label, "paid": x["age"] + label} if kind == "two outputs" else label


def batches(kind, ranks):
    """The steps' batches of some workers, each step's as one."""
    steps = [
        tf.nest.map_structure(
            lambda *parts: tf.concat(parts, axis=0),
            *(batch_of(kind, rank, step) for rank in ranks),
        )
        for step in range(STEPS)
    ]
    signature = tf.nest.map_structure(lambda t: tf.TensorSpec((None, 1), t.dtype), steps[0])
    data = tf.data.Dataset.from_generator(lambda: iter(steps), output_signature=signature)
    return data.apply(tf.data.experimental.assert_cardinality(STEPS))


def trained(size):
    """Losses, weights and state after some epochs, of each case, with the batches of all workers."""
    workers, found = join_workers(timeout=100), {}
    table_gradient.SMALL = SMALL
    ranks = [workers.rank] if workers.size > 1 else range(int(size))
    for case, (shard, kind, name) in CASES.items():
        keras.utils.set_random_seed(1)
        model = make(shard if workers.size > 1 else None, kind)
        both = {"clicked": "binary_crossentropy", "paid": "mse"}
        losses = {"loss": both} if kind == "two outputs" else {}
        compile_model(
            model, OPTIMIZERS[name](), workers=workers, steps_per_execution=STEPS, **losses
        )
        data = batches(kind, ranks)
        history = model.fit(data, epochs=EPOCHS, verbose=0, shuffle=False).history
        found[case] = {"loss": history["loss"], "devices": devices(model)}
        with whole(model):
            if workers.rank == 0 or shard is None:
                found[case]["weights"] = [weight.tolist() for weight in model.get_weights()]
                state = model.optimizer.variables
                found[case]["state"] = [variable.numpy().tolist() for variable in state]
    return found


def devices(model):
    """Kinds of devices on which the weights are."""
    return sorted({v.value.device.rpartition("device:")[2][:3] for v in model.variables})


def read(rows, device):
    """The numbers of the rows that a worker's loader gives, on its GPU."""
    workers = join_workers(timeout=100)
    loader = KerasSequenceLoader(
        rows, 1000, ["label"], cat_names=["row"], seed=3, device=device,
        global_size=workers.size, global_rank=workers.rank,
    )  # fmt: skip
    return [int(number) for x, _ in loader for number in x["row"].numpy()[:, 0]]


class Fault(keras.callbacks.Callback):
    """Kills or stops the process in its second epoch."""

    def __init__(self, kind):
        super().__init__()
        self._kind = kind

    def on_train_batch_begin(self, batch, logs=None):  # noqa: ARG002
        if batch == 2 and self.model.optimizer.iterations > STEPS:
            if self._kind == "hangs":
                time.sleep(600)
            os.kill(os.getpid(), signal.SIGKILL)


def until_one_fails(shard, kind, timeout):
    """The second worker dies or hangs in the second epoch; the error of the first."""
    workers = join_workers(timeout=float(timeout))
    keras.utils.set_random_seed(1)
    model = make(None if shard == "none" else shard, "ids")
    compile_model(model, "adagrad", workers=workers)
    faults = [Fault(kind)] if workers.rank == 1 else []
    try:
        model.fit(
            batches("ids", [workers.rank]), epochs=50, callbacks=faults, verbose=0, shuffle=False
        )
    except (TrainingError, LoaderError) as error:
        return str(error)
    return "nothing"


def up_to(rows, folder, epochs):
    """Train to an epoch, from the checkpoint and the files; the whole tables at the end."""
    workers = join_workers(timeout=100)
    keras.utils.set_random_seed(1)
    sizes = {"row": (4000, 8)}
    model = models.mlp(
        sizes,
        [],
        hidden=(8,),
        id_dtypes={"row": "int32"},
        shard="auto",
        embeddings_initializer="normal",
    )
    loader = KerasSequenceLoader(
        rows, 1000 // workers.size, ["label"], cat_names=["row"], seed=3,
        global_size=workers.size, global_rank=workers.rank,
    )  # fmt: skip
    report = train(
        model, loader, epochs=int(epochs), optimizer=optimizers.Adagrad(0.1), workers=workers,
        checkpoint=folder,
    )  # fmt: skip
    return {"loss": report.history["loss"]}
