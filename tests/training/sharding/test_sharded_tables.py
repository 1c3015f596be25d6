"""Tables that are divided among several processes, each a worker of TF_CONFIG, on this machine's CPU."""

import signal
from functools import cache

import keras
import numpy as np
import polars as pl
import pytest
import shard_together as program
import tensorflow as tf
from worker_processes import found_by, start

from training import TrainingError, compile_model, layers, retrieval

ROWS = 120


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Ids that workers have in common, some out of range; lists of 0 to 5."""
    random = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "user": random.integers(0, 11, ROWS).astype("int32"),
            "friend": random.integers(0, 9, ROWS).astype("int32"),
            "item": np.minimum(random.zipf(1.3, ROWS), 39).astype("int32"),
            "city": random.integers(0, 3, ROWS).astype("int32"),
            "tags": [random.integers(0, 50, n).tolist() for n in random.integers(0, 6, ROWS)],
            "label": random.integers(0, 2, ROWS).astype("int8"),
        },
        schema_overrides={"tags": pl.List(pl.Int32)},
    )
    file = tmp_path_factory.mktemp("together") / "rows.parquet"
    frame.write_parquet(file, row_group_size=20)
    return file


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.long)])
def found(rows, tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("results")
    return found_by(start(request.param, folder, program.divided, rows, folder), folder)


def epochs_of(rows, size):
    """The batches of all workers in each epoch, each step's as one."""
    loaders = [program.load(rows, rank, size) for rank in range(size)]
    for _ in range(program.EPOCHS):
        yield [
            tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *batches)
            for batches in zip(*loaders, strict=True)
        ]


@pytest.fixture(scope="module")
def ones(rows, found):
    """Losses, weights and state of one process with whole tables, from equal seeds."""
    results = {}
    epochs = [*epochs_of(rows, len(found))]
    for shard in ("auto", "table", "row"):
        keras.utils.set_random_seed(1)
        model = program.make(None)
        compile_model(model, program.OPTIMIZERS[shard]())
        losses = [
            model.fit(as_data(epoch), verbose=0, shuffle=False).history["loss"][0]
            for epoch in epochs
        ]
        results[shard] = {"loss": losses, **program.state_of(model)}
    return {**results, "column": results["auto"]}  # with the same optimizer


def as_data(batches):
    signature = tf.nest.map_structure(
        lambda t: tf.TensorSpec((None, t.shape[1]), t.dtype), batches[0]
    )
    data = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)
    return data.apply(tf.data.experimental.assert_cardinality(len(batches)))


@pytest.mark.parametrize("shard", program.SHARDS)
def test_divided_tables_train_as_whole_ones(found, ones, shard):
    for worker in found:
        np.testing.assert_allclose(worker[shard]["loss"], ones[shard]["loss"], rtol=0, atol=1e-6)
    for kind in ("weights", "state"):
        for own, expected in zip(found[0][shard][kind], ones[shard][kind], strict=True):
            np.testing.assert_allclose(own, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("shard", program.SHARDS)
def test_each_worker_holds_a_part(found, shard):
    # With a row for unknown ids in each column.
    whole = np.array([(9 + 40 + 3 + 3) * 6, 51 * 12])
    held = np.array([[rows * width for rows, width in worker[shard]["held"]] for worker in found])
    # A worker without any row of a variable has one spare row.
    empty = (held == [6, 12]).sum(axis=0)
    assert (held.sum(axis=0) - empty * [6, 12] == whole).all()
    assert held.sum(axis=1).max() < 0.8 * whole.sum()


@pytest.mark.parametrize("shard", program.MEASURED)
def test_workers_evaluate_and_predict_together(found, shard):
    first, *others = (worker[shard] for worker in found)
    for other in others:
        assert other["measured"] == first["measured"]
    np.testing.assert_allclose(first["measured whole"], first["measured"], rtol=0, atol=1e-6)


def test_a_table_that_is_set_is_saved_as_it_is(found):
    given = found[0]["given"]
    for shard in program.SHARDS:
        assert given[shard]
        assert given[f"warm {shard}"]
        assert "Expected earlier with whole tables" in given[f"refused {shard}"]


@pytest.mark.parametrize(
    ("what", "messages"),
    [
        ("no workers", ["Expected workers=join_workers()", "Received: none, or one alone"]),
        (
            "keras' step",
            ["the split step for tables that are divided", "compile_model(model, workers"],
        ),
        ("keras", ["an optimizer of training.optimizers", "Received: Adam"]),
        ("norm", ["no norm to clip by", "'clipnorm': 1.0", "clipvalue"]),
        ("float16", ['With precision="float16" use "bfloat16"']),
        (
            "room",
            ["tables of 2.4e+05 GB. Received: ", " GB for worker ", ", which has", "at least"],
        ),
        (
            "save",
            [
                "Expected a whole table of user, friend, item, city, to save it",
                "whole_tables(model)",
            ],
        ),
        ("save state", ["whole state of", "to save it. Received: a part", "whole_tables(model)"]),
        ("read", ["Expected a whole table of ", "whole_tables(model)"]),
        ("no rows", ["in epoch 1 4 rows on worker 0 (localhost:", "0 on worker 1", "global_rank"]),
        ("other sizes", ["the same weights. Received: [[55, 6]", "[[56, 6]"]),
    ],
)
def test_misuse_is_an_error(found, what, messages):
    # The first one alone saves what it has gathered.
    for worker in found[:1] if what == "save state" else found:
        for message in messages:
            assert message in worker["refused"][what]


def test_no_room_for_the_optimizers_state_is_an_error_before_it_is_made(found):
    # By hand: 55 rows of 6 and 51 of 12 values are divided, 36 x 8 + 8 + 8 + 1 values are not.
    most = [-(-55 // len(found)) * 6 + 51 // len(found) * 12, 305]
    for worker in found:
        error = worker["refused"]["adam's state"]
        assert f"Expected room on {len(found)} workers for the state of Adam, 2 times" in error
        assert "for worker 1, which has" in error
        assert worker["refused"]["no state"] == "nothing"
    state = float(error.partition("Received: ")[2].split()[0]) * 1e9
    assert abs(state - 2 * 4 * sum(most)) < 2 * 4 * 24


def test_a_width_that_does_not_divide_is_an_error(found):
    for worker in found:
        error = worker["refused"]["width"]
        assert f"Expected widths that {len(found)} workers divide" in error
        assert "Received: 5 for 'user'" in error


def test_an_unknown_word_is_an_error():
    text = "Expected shard as None or one of auto, table, row, column. Received: 'rows'"
    with pytest.raises(TrainingError, match=text):
        layers.EmbeddingCollection({"user": (9, 4)}, shard="rows")


def test_one_worker_alone_holds_whole_tables():
    layer = layers.EmbeddingCollection({"user": (9, 4)}, shard="column")
    layer.build()
    assert layer.embedding_tables["user"].shape == (9, 4)
    restored = layers.EmbeddingCollection.from_config(layer.get_config())
    assert restored.shard == "column"


@pytest.mark.parametrize(
    "numbers", [(3, 1), *(pytest.param(each, marks=pytest.mark.long) for each in [(2, 3), (1, 2)])]
)
def test_a_checkpoint_resumes_with_another_number_of_workers(rows, tmp_path, numbers):
    results = tmp_path / "results"
    for number, epochs in zip(numbers, (1, 2), strict=True):
        folder = results / str(number)
        folder.mkdir(parents=True)
        processes = start(number, folder, program.up_to, rows, tmp_path, epochs, "auto")
        found = found_by(processes, folder)
        for worker in found:
            assert "Expected the model of the checkpoint" in worker["other model"]
    model = keras.saving.load_model(tmp_path / "2.keras")
    for own, expected in zip(model.get_weights(), found[0]["weights"], strict=True):
        np.testing.assert_array_equal(own, np.array(expected, "float32"))
    assert_resumed_as_one(found[0], rows, numbers)


def assert_resumed_as_one(first, rows, numbers):
    """Weights and state are those of one process, with so many workers' batches in each epoch."""
    one = resumed_as_one(rows, numbers)
    for own, expected in zip(first["weights"], one.get_weights(), strict=True):
        np.testing.assert_allclose(own, expected, rtol=0, atol=1e-6)
    for own, expected in zip(first["state"], one.optimizer.variables, strict=True):
        np.testing.assert_allclose(own, expected.numpy(), rtol=0, atol=1e-6)


def resumed_as_one(rows, numbers):
    """The model of one process that trains on the joined batches of each epoch's workers."""
    keras.utils.set_random_seed(1)
    model = program.make(None)
    compile_model(model, program.OPTIMIZERS["auto"]())
    for epoch, size in enumerate(numbers):
        batches = [*epochs_of(rows, size)][epoch]
        for x, y in batches:
            model.train_on_batch(x, y)
    return model


def fitted_as_one(model, loaders):
    """The losses of one process with the joined batches of workers' loaders."""
    losses = []
    compile_model(model, program.OPTIMIZERS["auto"]())
    for _ in range(program.EPOCHS):
        batches = [
            tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *pair)
            for pair in zip(*loaders, strict=True)
        ]
        history = model.fit(as_data(batches), verbose=0, shuffle=False).history
        losses.append(history["loss"][0])
    return losses


@pytest.mark.long
def test_a_worker_that_dies_while_tables_are_divided_ends_all_and_fewer_resume(rows, tmp_path):
    workers = start(3, tmp_path, program.until_one_dies, rows, tmp_path)
    workers[2].join(200)
    assert workers[2].exitcode == -signal.SIGKILL
    for error in found_by(workers[:2], tmp_path, timeout=30):
        assert "Expected all 3 workers to train until the end. Received: worker 2 (local" in error
    found = found_by(start(2, tmp_path, program.up_to, rows, tmp_path, 2, "auto"), tmp_path)
    assert_resumed_as_one(found[0], rows, (3, 2))


@pytest.mark.long
def test_tables_are_gathered_and_saved_without_a_second_copy(tmp_path):
    first, second = found_by(start(2, tmp_path, program.gathered, tmp_path), tmp_path)
    assert 0.9 < first["gathered"] < 1.3, "the whole table, beside the half that the worker holds"
    assert second["gathered"] < 0.3
    assert first["saved"] < 0.3
    assert first["bytes"] > 400_001 * 128 * 4
    for one in (first, second):
        assert one["sum"] == 1.0, "the first one's values, of which one row is 1"
        assert one["copied"] < 0.9, "parts of 16 MB"


QUICK = ("row", "behaviour", "softmax")
LONG = ("auto", "table", "column")


@pytest.fixture(scope="module")
def towers(rows, tmp_path_factory):
    """The findings of two workers about the given models."""

    @cache
    def found(kinds):
        folder = tmp_path_factory.mktemp("towers")
        return found_by(start(2, folder, program.towers, rows, *kinds), folder)

    return found


@pytest.mark.parametrize(
    ("kinds", "shard"),
    [(QUICK, "row"), *(pytest.param(LONG, shard, marks=pytest.mark.long) for shard in LONG)],
)
def test_towers_with_divided_tables_train_as_whole_ones(rows, towers, kinds, shard):
    keras.utils.set_random_seed(1)
    model = program.tower_model(None)
    losses = fitted_as_one(model, [program.load_pairs(rows, rank, 2) for rank in range(2)])
    want = program.state_of(model)
    found = towers(kinds)
    for worker in found:
        np.testing.assert_allclose(worker[shard]["loss"], losses, rtol=0, atol=1e-6)
        # All have 9 + 3 + 40 ids and a row for unknown ones in each column; in "table" the items are
        # whole on one worker.
        assert worker[shard]["held"] < (0.6 if shard in ("row", "column") else 1) * 55 * 6
    for kind in ("weights", "state"):
        for own, expected in zip(found[0][shard][kind], want[kind], strict=True):
            np.testing.assert_allclose(own, expected, rtol=0, atol=1e-6)


def test_a_sequence_with_a_divided_table_trains_as_with_a_whole_one(rows, towers):
    keras.utils.set_random_seed(1)
    model = program.behaviour_model(None)
    losses = fitted_as_one(model, [program.load_behaviour(rows, rank, 2) for rank in range(2)])
    found = [worker["behaviour"] for worker in towers(QUICK)]
    for worker in found:
        np.testing.assert_allclose(worker["loss"], losses, rtol=0, atol=1e-6)
    assert found[0]["held"] == [26, 6]
    weights = found[0]["weights"]
    for own, expected in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_allclose(own, expected, rtol=0, atol=1e-5)
    layer = layers.SequenceEmbedding(50, 6, length=5, shard="row")
    assert layers.SequenceEmbedding.from_config(layer.get_config()).items.shard == "row"


def test_items_of_a_workers_own_batch_are_its_negatives(rows, towers):
    losses = []
    for rank in range(2):
        keras.utils.set_random_seed(1)
        model = program.tower_model(None, program.IN_BATCH)
        model.compile(loss=retrieval.SoftmaxLoss())
        batch = next(iter(program.load_pairs(rows, rank, 2)))
        losses.append(model.evaluate(*batch, batch_size=program.BATCH, verbose=0))
    for worker in towers(QUICK):
        np.testing.assert_allclose(worker["softmax"], [np.mean(losses)], rtol=0, atol=1e-5)
