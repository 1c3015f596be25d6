"""`tf.distribute`: several replicas in one process, several processes with one worker each.

Each test is a program of its own, since logical devices and clusters are set up once a process.
"""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from worker_processes import tf_configs

COMMON = """
import os, sys
import keras, numpy as np, tensorflow as tf
from loader import KerasSequenceLoader, LoaderCheckpoint, LoaderError
folder, out = sys.argv[1:3]
def make(batch_size, cats=("userId",), **options):
    return KerasSequenceLoader(
        folder, batch_size, ["rating"], cat_names=list(cats), cont_names=["price"],
        **{"seed": 7, **options}
    )
def locals_of(strategy, value):
    return strategy.experimental_local_results(value)
def save(**found):
    import json, pathlib
    pathlib.Path(out).write_text(json.dumps(found))
"""

MIRRORED = """
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
class Total(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="total")
        self.sum = self.add_weight(shape=(), initializer="zeros", name="sum")
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.sum.assign_add(tf.reduce_sum(y_pred))
    def result(self):
        return self.sum
with strategy.scope():
    loader = make(100)
    price = keras.Input((1,), name="price")
    layer = keras.layers.Dense(1, kernel_initializer="ones")
    model = keras.Model({"price": price}, layer(price))
    model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[Total()])
data = loader.map(lambda x, y: ({"price": x["price"]}, y))
history = model.fit(data, epochs=2, verbose=0, shuffle=False).history
pairs = []
lists = make(50, cats=("userId", "genres"), shuffle=False)
distributed = lists.distribute(strategy)
for x, _ in distributed:
    users, (values, lengths) = x["userId"], x["genres"]
    for users, values, lengths in zip(
        locals_of(strategy, users), locals_of(strategy, values), locals_of(strategy, lengths)
    ):
        row = users.numpy()[:, 0]
        expected = [v for n in row for v in range(n, n + n % 4)]
        assert values.numpy()[:, 0].tolist() == expected, "a pair was cut apart"
        assert lengths.numpy()[:, 0].tolist() == (row % 4).tolist()
        pairs += row.tolist()
def train(folder, crash=None, distribute=False):
    with strategy.scope():
        model = keras.Model({"price": price}, keras.layers.Dense(1, kernel_initializer="ones")(price))
        model.compile(keras.optimizers.SGD(1e-5), "mse")
    loader = make(30 if distribute else 100, cats=())
    data = loader.distribute(strategy) if distribute else loader
    checkpoint = LoaderCheckpoint(loader, folder, save_freq=3)
    def interrupt(batch, logs):
        if batch == crash:
            raise KeyboardInterrupt
    callbacks = [checkpoint, keras.callbacks.LambdaCallback(on_train_batch_end=interrupt)]
    start = checkpoint.restore(model)
    try:
        model.fit(data, epochs=2, verbose=0, initial_epoch=start, callbacks=callbacks,
                  shuffle=False)
    except KeyboardInterrupt:
        return None
    return [variable.numpy().tolist() for variable in model.trainable_variables]
train(out + "-killed", crash=7)
train(out + "-killed-2", crash=13, distribute=True)
save(total=history["total"], rows=pairs, steps=int(distributed.cardinality),
     whole=[train(out + "-whole"), train(out + "-whole-2", distribute=True)],
     resumed=[train(out + "-killed"), train(out + "-killed-2", distribute=True)])
"""

WORKER = """
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id
try:
    with strategy.scope():
        make(30, seed=None)
except LoaderError as error:
    assert "same for all workers" in str(error), error
with strategy.scope():
    loader = make(30)
    plain = make(30, shuffle=False)
    weight = tf.Variable(0.0)
outside = make(30)
assert len(outside) == 34, "outside of a strategy's scope a loader is alone"
@tf.function
def step(batch):
    def replica(batch):
        context = tf.distribute.get_replica_context()
        weight.assign_add(context.all_reduce("sum", tf.reduce_sum(batch[0]["price"])))
    strategy.run(replica, (batch,))
steps, rows = 0, []
for epoch in range(2):
    for batch in loader.distribute(strategy):
        step(batch)  # hangs, should the workers take different numbers of steps
        steps += 1
for batch in strategy.experimental_distribute_dataset(plain):
    for users in locals_of(strategy, batch[0]["userId"]):
        rows += users.numpy()[:, 0].tolist()
save(rank=rank, steps=steps, length=len(loader), total=float(weight.numpy()), rows=rows)
"""


def run(programs, folder, tmp_path, environments):
    outs = [tmp_path / f"{number}.json" for number in range(len(programs))]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", COMMON + textwrap.dedent(program), str(folder), str(out)],
            env=os.environ | environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for program, out, environment in zip(programs, outs, environments, strict=True)
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=600)
            assert process.returncode == 0, errors[-3000:]
    finally:
        for process in processes:
            process.kill()
    return [json.loads(out.read_text()) for out in outs]


@pytest.mark.long
def test_replicas_of_one_process_train_on_every_row_once(folder, tmp_path):
    (found,) = run([MIRRORED], folder, tmp_path, [{}])
    # The model's output is the price, so that the sum over all rows shows in the metric.
    assert found["total"] == pytest.approx([49950.0, 49950.0], rel=1e-5)
    assert found["rows"] == list(range(1000))
    assert found["steps"] == 10
    # Keras takes a batch to build the model by before it trains; no checkpoint may lose it.
    assert found["resumed"] == found["whole"]


@pytest.mark.long
def test_workers_of_a_cluster_get_their_ranks_and_take_equal_steps(folder, tmp_path):
    configs = [{"TF_CONFIG": json.dumps(config)} for config in tf_configs(2)]
    found = run([WORKER] * 2, folder, tmp_path, configs)
    assert [each["rank"] for each in found] == [0, 1]
    assert [each["steps"] for each in found] == [34, 34]
    assert [each["length"] for each in found] == [17, 17]
    assert [each["total"] for each in found] == pytest.approx([2 * 49950.0] * 2, rel=1e-5)
    assert found[0]["rows"] == list(range(500))
    assert found[1]["rows"] == list(range(500, 1000))
