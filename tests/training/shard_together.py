"""Programs of the workers of test_sharded_tables.py: each trains, and returns its findings for JSON."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from train_together import BATCH, Death, refused, weights_of
from worker_processes import PATIENCE

from benchmarks.measure import memory_gb, peak_memory
from loader import KerasSequenceLoader, LoaderCheckpoint
from training import (
    compile_model,
    join_workers,
    layers,
    models,
    optimizers,
    retrieval,
    save_model,
    train,
    warm_start,
    whole_tables,
)
from training.sharding import room
from workflow import Workflow, ops

# Two widths, so two variables, which two and three workers divide; in "auto" some tables are whole.
# A friend is looked up in the table of users.
SIZES = {"user": (9, 6), "friend": (9, 6), "item": (40, 6), "city": (3, 6), "tags": (50, 12)}
SHARDS = ("auto", "table", "row", "column")
# Accumulators start so low that every gradient shows. Adam divides by a gradient's size: with less epsilon it
# enlarges the rounding of gradients near zero.
OPTIMIZERS = {
    "auto": lambda: optimizers.Adagrad(0.05, initial_accumulator_value=1e-4),
    "table": lambda: optimizers.SGD(0.5),
    "row": lambda: optimizers.Adam(0.05, epsilon=1e-3),
    "column": lambda: optimizers.Adagrad(0.05, initial_accumulator_value=1e-4),
}
MEASURED = ("auto", "column")
EPOCHS = 2
IN_BATCH = retrieval.InBatchSoftmax("item", rate=None)


def make(shard, sizes=None):
    inputs = {
        name: keras.Input((1,), name=name, dtype="int32")
        for name in ("user", "friend", "item", "city")
    }
    inputs["tags"] = tuple(
        keras.Input((1,), name=f"tags__{half}", dtype="int32") for half in ("values", "nnzs")
    )
    features = layers.DenseFeatures(
        sizes or SIZES,
        embeddings_initializer="normal",
        shared={"friend": "user"},
        shard=shard,
        name="features",
    )
    hidden = keras.layers.Dense(8, "relu")(features(inputs))
    return keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(hidden))


def load(rows, rank, size):
    return KerasSequenceLoader(
        str(rows), BATCH, ["label"], cat_names=[*SIZES], seed=3,
        global_size=size, global_rank=rank,
    )  # fmt: skip


def state_of(model):
    """The whole weights and optimizer state, where the tables are whole."""
    state = [variable.numpy().tolist() for variable in model.optimizer.variables]
    return {"weights": weights_of(model), "state": state}


def trained(shard, rows, workers):
    keras.utils.set_random_seed(1)
    data, model = load(rows, workers.rank, workers.size), make(shard)
    held = [list(v.shape) for v in model.get_layer("features").trainable_variables]
    compile_model(model, OPTIMIZERS[shard](), workers=workers, xla=False)
    found = {"held": held}
    found["loss"] = model.fit(data, epochs=EPOCHS, verbose=0, shuffle=False).history["loss"]
    if shard in MEASURED:
        found["measured"] = measured(model, rows)
    with whole_tables(model):
        if workers.rank == 0:
            found |= state_of(model)
            if shard in MEASURED:
                found["measured whole"] = measured(model, rows)
    return found


def measured(model, rows):
    """The loss of all rows, and predictions for them."""
    data = load(rows, 0, 1)
    loss = model.evaluate(data, verbose=0)
    return [loss, *model.predict(data.map(lambda x, _: x), verbose=0)[:, 0].tolist()]


def divided(rows, folder):
    """Train with each way of dividing tables; then misuse them."""
    workers = join_workers(PATIENCE)
    found = {shard: trained(shard, rows, workers) for shard in SHARDS}
    found["refused"] = misused(rows, folder, workers)
    found["given"] = given(workers)
    # Last, since TensorFlow cannot exchange anything after a step that failed.
    found["refused"]["no rows"] = refused(lambda: fit_rows(workers, 0 if workers.rank else 4))
    return found


def fit_rows(workers, rows):
    """One batch of so many rows, or no batch."""
    ids = tf.zeros([rows, 1], tf.int32)
    x = {name: ids for name in SIZES if name != "tags"} | {"tags": (ids, tf.ones_like(ids))}
    model = make("row")
    compile_model(model, "sgd", workers=workers)
    data = tf.data.Dataset.from_tensors((x, tf.zeros([rows, 1])))
    model.fit(data.take(min(rows, 1)), verbose=0, shuffle=False)


def given(workers):
    """A table that is set as a whole, or by values from an earlier model, and saved as a whole."""
    vectors = np.arange(240, dtype="float32").reshape(40, 6)
    found = {}
    earlier = make(None)
    earlier.get_layer("features").embeddings.set_embedding_table("item", vectors)
    # 37 values; the most frequent one becomes the rarest, which all others follow one id lower.
    counts = [np.arange(37, 0, -1), np.append([1], np.arange(38, 2, -1))]
    monday, tuesday = (
        Workflow(["item"] >> ops.Categorify()).fit({"item": np.repeat(np.arange(37), n)})
        for n in counts
    )
    moved = np.concatenate([vectors[:3], vectors[4:], vectors[3:4]])
    for shard in SHARDS:
        model = make(shard)
        fits = {"workflow": tuesday, "earlier_workflow": monday}
        begin = partial(warm_start, model, earlier=make(shard), **fits)
        found[f"refused {shard}"] = refused(begin)
        warm_start(model, tuesday, earlier=earlier, earlier_workflow=monday)
        with whole_tables(model):
            if workers.rank == 0:
                table = model.get_layer("features").embedding_tables["item"]
                found[f"warm {shard}"] = bool((table.numpy() == moved).all())
        model = make(shard)
        model.get_layer("features").embeddings.set_embedding_table("item", vectors)
        with whole_tables(model):
            if workers.rank == 0:
                table = model.get_layer("features").embedding_tables["item"]
                found[shard] = bool((table.numpy() == vectors).all())
    return found


def misused(rows, folder, workers):
    rank = workers.rank
    data = load(rows, rank, workers.size)

    def compiled(*arguments, **options):
        return refused(lambda: compile_model(make("row"), *arguments, **options))

    def run(model, **options):
        return refused(lambda: train(model, data, workers=workers, **options))

    def saved_without_state():
        model = make("row")
        compile_model(model, "adagrad", workers=workers)
        model.optimizer.build(model.trainable_variables)
        with whole_tables(model, optimizer=False):
            return refused(lambda: model.save(f"{folder}/stateless{rank}.keras"))

    def by_keras():
        model = make("row")
        model.compile("sgd", "binary_crossentropy", jit_compile=False)
        model.fit(data, verbose=0, shuffle=False)

    huge = {**SIZES, "item": (10**13, 6)}
    model = make("row")

    def in_little_memory(optimizer):
        """Compiled where the second host says that it has 6,000 bytes, for two workers or three."""
        before = room.free_memory
        room.free_memory = (lambda: 6000) if rank == 1 else before
        try:
            return compiled(optimizer, workers=workers)
        finally:
            room.free_memory = before

    return {
        "adam's state": in_little_memory("adam"),
        "no state": in_little_memory("sgd"),
        "no workers": compiled("sgd"),
        "keras' step": refused(by_keras),
        "keras": compiled(keras.optimizers.Adam(), workers=workers),
        "norm": compiled(optimizers.SGD(clipnorm=1.0), workers=workers),
        "float16": compiled("sgd", precision="float16", workers=workers),
        "width": refused(lambda: make("column", {**SIZES, "user": (9, 5), "friend": (9, 5)})),
        "room": refused(lambda: make("auto", huge)),
        "save": refused(lambda: model.save(f"{folder}/part{rank}.keras")),
        "save state": saved_without_state(),
        "read": refused(lambda: model.get_layer("features").embedding_tables),
        "other sizes": run(make("row", {**SIZES, "item": (40 + rank, 6)})),
    }


def up_to(rows, folder, epochs, shard):
    """Train up to an epoch, from the checkpoint."""
    workers = join_workers(PATIENCE)
    keras.utils.set_random_seed(1)
    model = make(shard)
    train(
        model, load(rows, workers.rank, workers.size), epochs=int(epochs), workers=workers,
        optimizer=OPTIMIZERS["auto"](), checkpoint=f"{folder}/run",
    )  # fmt: skip
    other = refused(
        lambda: train(
            make(shard, {**SIZES, "item": (41, 6)}), load(rows, workers.rank, workers.size),
            epochs=int(epochs), workers=workers, optimizer=OPTIMIZERS["auto"](),
            checkpoint=LoaderCheckpoint(
                load(rows, workers.rank, workers.size), f"{folder}/run", writes=False
            ),
        )
    )  # fmt: skip
    found = {"other model": other}
    with whole_tables(model):
        if workers.rank == 0:
            found |= state_of(model)
            model.save(f"{folder}/{epochs}.keras")
    return found


def until_one_dies(rows, folder):
    """The last worker is killed in the second epoch."""
    workers = join_workers(timeout=400)
    keras.utils.set_random_seed(1)
    callbacks = [Death()] if workers.rank == workers.size - 1 else []
    return refused(
        lambda: train(
            make("auto"), load(rows, workers.rank, workers.size), epochs=2, workers=workers,
            optimizer=OPTIMIZERS["auto"](), checkpoint=f"{folder}/run", callbacks=callbacks,
        )
    )  # fmt: skip


def gathered(folder):
    """The peak of memory beside what is held before, in tables, while a trained table of 200 MB is whole.

    And while one that all workers have gets the values of the first one.
    """
    workers = join_workers(PATIENCE)
    item = keras.Input((1,), name="item", dtype="int64")
    features = layers.DenseFeatures({"item": (400_000, 128)}, shard="row", name="features")
    output = keras.layers.Dense(1, "sigmoid")(features({"item": item}))
    model, found = keras.Model({"item": item}, output), {}
    small = keras.Sequential([keras.Input((2,), name="x"), keras.layers.Dense(1)])
    save_model(small, f"{folder}/small{workers.rank}")  # what the first call of TensorFlow's takes
    compile_model(model, "sgd", workers=workers, xla=False)
    batch = {"item": tf.range(8)[:, tf.newaxis]}, tf.ones([8, 1])
    model.fit(tf.data.Dataset.from_tensors(batch), verbose=0, shuffle=False)
    table = 400_001 * 128 * 4

    def peak_of(name, before, call):
        with peak_memory() as peak:
            call()
        found[name] = (peak[0] - before) * 2**30 / table

    with ExitStack() as stack:
        before = memory_gb("VmRSS")
        peak_of("gathered", before, lambda: stack.enter_context(whole_tables(model)))
        whole = memory_gb("VmRSS")
        if workers.rank == 0:
            peak_of("saved", whole, lambda: save_model(model, f"{folder}/whole"))
            found["bytes"] = sum(f.stat().st_size for f in Path(f"{folder}/whole").rglob("*.data*"))
    values = tf.Variable(tf.fill([400_001, 128], float(workers.rank)))
    values.scatter_add(tf.IndexedSlices(tf.ones([1, 128]), [workers.rank]))  # as an optimizer does
    before = memory_gb("VmRSS")
    peak_of("copied", before, lambda: workers.collectives.copy_from_first([values]))
    found["sum"] = float(tf.reduce_sum(values[:, 0]))
    return found


def tower_model(shard, softmax=None):
    sizes = {"user": (9, 6), "city": (3, 6), "item": (40, 6)}
    sides = {"query": ["user", "city"], "candidate": ["item"]}
    return models.two_tower(
        sizes, **sides, width=4, hidden=(8,), softmax=softmax, shard=shard,
        embeddings_initializer="normal",
    )  # fmt: skip


def behaviour_model(shard):
    sizes = {"item": (50, 6), "user": (11, 6)}, {"tags": (50, 6)}
    ids = {"item": "int32", "user": "int32", "tags": "int32"}
    return models.bst(
        sizes, sequence="tags", target="item", length=5, embedding_dim=6, heads=2, hidden=(8,),
        id_dtypes=ids, shard=shard, embeddings_initializer="normal",
    )  # fmt: skip


def load_behaviour(rows, rank, size):
    return KerasSequenceLoader(
        str(rows), BATCH, ["label"], cat_names=["user", "item", "tags"], seed=3,
        sparse_names=["tags"], sparse_max={"tags": 5}, sparse_as_dense=True,
        global_size=size, global_rank=rank,
    )  # fmt: skip


def load_pairs(rows, rank, size):
    return KerasSequenceLoader(
        str(rows), BATCH, ["label"], cat_names=["user", "city", "item"], seed=3,
        global_size=size, global_rank=rank,
    )  # fmt: skip


def fitted(model, data, loss, workers=None, epochs=EPOCHS):
    compile_model(model, OPTIMIZERS["auto"](), loss, workers=workers, xla=False)
    return model.fit(data, epochs=epochs, verbose=0, shuffle=False).history["loss"]


def towers(rows, *kinds):
    """Two towers with each way of dividing tables; "behaviour", a sequence; "softmax", over a batch."""
    workers = join_workers(PATIENCE)
    others = {"behaviour": behaviour, "softmax": softmax}
    return {
        kind: others[kind](rows, workers) if kind in others else pairs(kind, rows, workers)
        for kind in kinds
    }


def pairs(shard, rows, workers):
    keras.utils.set_random_seed(1)
    model = tower_model(shard)
    data = load_pairs(rows, workers.rank, workers.size)
    found = {"loss": fitted(model, data, "binary_crossentropy", workers)}
    found["held"] = sum(v.shape[0] * v.shape[1] for v in tables_of(model))
    with whole_tables(model):
        if workers.rank == 0:
            found |= state_of(model)
    return found


def behaviour(rows, workers):
    keras.utils.set_random_seed(1)
    model, data = behaviour_model("row"), load_behaviour(rows, workers.rank, workers.size)
    held = model.get_layer("sequence").items.embeddings.shape
    found = {"held": list(held), "loss": fitted(model, data, "binary_crossentropy", workers)}
    with whole_tables(model, optimizer=False):
        if workers.rank == 0:
            found["weights"] = weights_of(model)
    return found


def softmax(rows, workers):
    keras.utils.set_random_seed(1)
    model, data = tower_model("row", IN_BATCH), load_pairs(rows, workers.rank, workers.size)
    return fitted(model, data.take(1), retrieval.SoftmaxLoss(), workers, epochs=1)


def tables_of(model):
    """The variables of both towers' tables."""
    return [
        variable
        for side in ("query", "candidate")
        for variable in model.get_layer(f"{side}_features").trainable_variables
    ]
