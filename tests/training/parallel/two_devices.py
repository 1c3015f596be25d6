"""A worker's step as it is built for a GPU, on a second device of the CPU: which TensorFlow divides alike.

Its exchange stays in the process. TensorFlow writes the graph of each device into a folder.
"""

import sys

import numpy as np
import tensorflow as tf

from training import compile_model, join_workers, models
from training.parallel.collectives import Collectives
from training.split import step as split_step

ROWS = 64


def compiled(_, work):
    return tf.function(work, autograph=False, experimental_attributes={"_noinline": True})


def main(shard, kind, lengths):
    """Train on one batch."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    split_step.has_gpu = lambda: True
    Collectives.compiled = compiled
    Collectives.summed = lambda _, tensor: tf.identity(tensor)
    Collectives.joined = lambda _, part, *__: tf.concat([part, part], axis=0)
    Collectives.copy_from_first = lambda *_: None
    workers = join_workers()
    collectives = workers.collectives
    collectives.on_gpu = True
    second = tf.DeviceSpec.from_string(collectives.device).replace(device_index=1)
    collectives.device = second.to_string()
    lists = {"tags": (300, 8)} if kind == "lists" else {}
    ids = np.arange(ROWS, dtype="int64").reshape(-1, 1) % 7
    x = {"city": ids, "user": ids}
    if lists:
        x["tags"] = (ids, np.ones_like(ids))
    # One table of few rows, one of many.
    sizes = {"city": (7, 8), "user": (70_000, 8)}
    data = tf.data.Dataset.from_tensor_slices((x, (ids > 3).astype("float32")))
    # Of known lengths, which TensorFlow turns into constants, or of unknown ones.
    data = data.repeat(2).batch(ROWS, drop_remainder=lengths == "known")
    dtypes = dict.fromkeys(sizes, "int64") | dict.fromkeys(lists, ("int64", "int64"))
    with tf.device(collectives.device):
        model = models.mlp(
            (sizes, lists), hidden=(4,), id_dtypes=dtypes, shard=None if shard == "none" else shard
        )
        compile_model(model, "sgd", workers=workers)
        try:
            model.fit(data, verbose=0, shuffle=False)
        except tf.errors.InvalidArgumentError as error:
            # A GPU reads zeros for rows beyond the table.
            if "is not in [0" not in error.message:
                raise


main(*sys.argv[1:])
