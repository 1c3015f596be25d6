"""The Transformer over behaviour: its formula in numpy, and what it learns that a bag of ids cannot."""

import keras
import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from exporter import ServingOptions, export_ensemble
from loader import KerasSequenceLoader
from serving import EnsembleClient, TritonServer, check_parity
from training import TrainingError, compile_model, layers, models, train
from workflow import Workflow, ops
from workflow.schema.schema import ColumnSchema, Schema

LENGTH, ITEMS = 6, 30
SIZES = {"item": (40, 8), "user": (9, 4)}, {"recent": (40, 8), "tags": (12, 3)}
SMALL = {"embedding_dim": 8, "heads": 2, "hidden": (8,)}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_vectors_have_the_position_of_their_distance_to_the_target():
    layer = layers.SequenceEmbedding(10, 4, length=3)
    sequence = np.array([[5, 7, 0], [0, 0, 0], [1, 2, 3]])
    vectors, mask = layer(tf.constant(sequence), tf.constant([[7], [1], [9]]))
    table, positions = layer.items.table.numpy(), layer.positions.numpy()
    np.testing.assert_allclose(vectors[0, 0], table[5] + positions[2], rtol=1e-6)
    np.testing.assert_allclose(vectors[0, 1], table[7] + positions[1], rtol=1e-6)
    np.testing.assert_allclose(vectors[:, 3], table[[7, 1, 9]] + positions[0], rtol=1e-6)
    np.testing.assert_allclose(vectors[2, :3], table[[1, 2, 3]] + positions[[3, 2, 1]], rtol=1e-6)
    assert mask.numpy().tolist() == [[1, 1, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1]]


@pytest.mark.parametrize("dtypes", [("int8", "int16"), ("int16", "int8")])
def test_ids_of_the_sequence_may_be_narrower_than_those_of_the_target(dtypes):
    """200 as int8 was -56, and so an unknown id, without a word."""
    layer = layers.SequenceEmbedding(300, 4, length=2)
    sequence, target = ([[5, 7]], [[200]]) if dtypes[0] == "int8" else ([[200, 7]], [[5]])
    x, _ = layer(*map(tf.constant, (sequence, target), dtypes))
    vectors, positions = layer.items.table.numpy(), layer.positions.numpy()
    expected = vectors[[*sequence[0], *target[0]]] + positions[[2, 1, 0]]
    np.testing.assert_allclose(x[0], expected, rtol=1e-6)


def test_a_block_is_the_papers_formula():
    keras.utils.set_random_seed(0)
    model = models.bst(SIZES, sequence="recent", target="item", length=3, **SMALL)
    sequence, target = np.array([[5, 7, 0], [1, 2, 3]]), np.array([[7], [9]])
    x, mask = (t.numpy() for t in model.get_layer("sequence")(sequence, target))
    weights = [w.numpy() for w in model.get_layer("block_1_attention").weights]
    (wq, bq, wk, bk, wv, bv, wo, bo) = weights
    q, k, v = (
        np.einsum("nld,dhe->nhle", x, w) + b[None, :, None]
        for w, b in [(wq, bq), (wk, bk), (wv, bv)]
    )
    logits = np.einsum("nhle,nhme->nhlm", q, k) / 2  # the root of the heads' width, 4
    share = softmax(np.where(mask[:, None, None], logits, -1e9))
    attended = np.einsum("nhle,hed->nld", share @ v, wo) + bo

    def normalized(y):
        return (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-3)

    first = normalized(x + attended)
    wide, narrow = (model.get_layer(f"block_1_{n}") for n in ("wide", "narrow"))
    hidden = first @ wide.kernel.numpy()
    hidden = np.where(hidden > 0, hidden, 0.2 * hidden)
    expected = normalized(first + hidden @ narrow.kernel.numpy()) * mask[..., None]
    inside = keras.Model(model.input, model.get_layer("present").output)
    features = features_of(sequence, target)
    np.testing.assert_allclose(inside(features), expected, rtol=1e-4, atol=1e-5)


def features_of(sequence, target):
    none = np.zeros((0, 1), "int64"), np.zeros(target.shape, "int64")
    given = {
        "recent": sequence.astype("int64"),
        "item": target.astype("int32"),
        "user": np.zeros(target.shape, "int32"),
        "tags": none,
    }
    return tf.nest.map_structure(tf.constant, given)


def test_padding_does_not_change_the_answer():
    """A longer input with the same weights: only its padding is longer."""
    short = models.bst(SIZES, sequence="recent", target="item", length=3, **SMALL)
    given = features_of(np.array([[5, 7, 0]]), np.array([[7]]))
    inside = keras.Model(short.input, short.get_layer("present").output)
    other = features_of(np.array([[5, 7, 0]]), np.array([[7]]))
    before = inside(given).numpy()
    table = short.get_layer("sequence").items.embeddings
    changed = table.numpy()
    changed[0] += 100.0  # the vector of the padding
    table.assign(changed)
    np.testing.assert_allclose(inside(other), before, atol=1e-5)
    assert np.abs(before[0, 2]).max() == 0


def events(sessions, seed):
    """Clicks of sessions in any order; the target follows the last click, or with label 0 another."""
    random = np.random.default_rng(seed)
    rows = []
    for session in range(sessions):
        items = random.permutation(ITEMS)[: random.integers(2, LENGTH + 3)]
        label = int(random.integers(2))
        cause = items[-1] if label else items[random.integers(len(items) - 1)]
        target = (cause + 1) % ITEMS
        rows += [
            (session, time, f"item {item}", f"item {target}", label)
            for time, item in enumerate(items.tolist())
        ]
    frame = pl.DataFrame(rows, ["session", "time", "item", "target", "label"], orient="row")
    return frame.sample(fraction=1, shuffle=True, seed=seed)


def sessions_of(clicks):
    """A row for each session, by a workflow of its own, since a server groups no rows."""
    grouped = ["session", "item", "target", "label"] >> ops.Groupby(
        "session",
        sort_cols="time",
        aggs={"item": "list", "target": "first", "label": "first"},
    )
    made = Workflow(grouped).fit(clicks).transform(clicks).collect()
    return made.rename({"item_list": "recent", "target_first": "target", "label_first": "label"})


@pytest.mark.long
@pytest.mark.xdist_group("end_to_end")  # one server at a time
def test_sessions_are_learnt_in_their_order_and_served_with_dynamic_batching(tmp_path):
    learnt, unseen = (sessions_of(events(n, seed)) for n, seed in ((8_000, 1), (1_000, 2)))
    ids = [["recent", "target"]] >> ops.Categorify(encode_type="joint")
    recent = ids["recent"] >> ops.ListSlice(-LENGTH, pad=True)
    label = ["label"] >> ops.AddTags(["target"])
    workflow = Workflow(recent + ids["target"] + label).fit(learnt)
    workflow.transform_to_parquet(learnt, tmp_path / "train")
    workflow.transform_to_parquet(unseen, tmp_path / "valid")
    train_data, valid_data = (
        KerasSequenceLoader(
            tmp_path / name, 128, sparse_names=["recent"], sparse_as_dense=True, seed=1
        )
        for name in ("train", "valid")
    )
    keras.utils.set_random_seed(1)
    model = models.bst(
        workflow.output_schema,
        sequence="recent",
        target="target",
        embedding_dim=16,
        heads=2,
        hidden=(32,),
    )
    optimizer = keras.optimizers.Adam(0.005)
    report = train(model, train_data, valid_data, epochs=5, optimizer=optimizer)
    # Which of the items is the last one decides: a bag of the same ids says nothing about it.
    assert report.history["val_auc"][-1] > 0.9

    raw = unseen.drop("label")
    for runtime in ("tensorflow", "onnx", "fused_onnx"):
        options = ServingOptions(runtime=runtime, max_batch_size=64)
        export_ensemble(model, workflow, runtime, tmp_path / "models", serving=options)
    table = workflow.transform(unseen).collect()
    given = {
        "recent": np.array(table["recent"].to_list()),
        "target": table["target"].to_numpy()[:, None],
    }
    expected = model.predict(given, batch_size=500, verbose=0)
    with TritonServer(tmp_path / "models") as server:
        for runtime in ("tensorflow", "onnx", "fused_onnx"):
            with EnsembleClient(server.grpc_url, runtime) as client:
                np.testing.assert_allclose(
                    client.predict(raw)["output"].to_numpy(), expected[:, 0], atol=1e-5
                )
                assert check_parity(client, workflow, model, unseen[:100], batch_size=7)


@pytest.mark.long
def test_it_learns_in_16_bits_as_in_32():
    random = np.random.default_rng(0)
    item = random.integers(1, 40, (1_000, 1))
    none = np.zeros((0, 1), "int64"), np.zeros((100, 1), "int64")
    features = {
        "item": item.astype("int32"),
        "user": random.integers(0, 9, item.shape).astype("int32"),
        "recent": random.integers(0, 40, (1_000, 3)),
    }
    data = tf.data.Dataset.from_tensor_slices((features, (item % 2).astype("float32"))).batch(100)
    data = data.map(lambda x, y: ({**x, "tags": none}, y))
    losses = {}
    for precision in ("float32", "bfloat16"):
        keras.utils.set_random_seed(0)
        model = models.bst(SIZES, sequence="recent", target="item", length=3, **SMALL)
        compile_model(model, keras.optimizers.SGD(0.1), precision=precision)
        losses[precision] = model.fit(data, epochs=2, shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(losses["bfloat16"], losses["float32"], rtol=0.02)


JOINT = {"cardinality": 40}


def schema(count=None, vocabulary="item"):
    more = {} if count is None else {"value_count": count}
    own = {**JOINT, "domain": {"name": vocabulary}}
    return Schema(
        [
            ColumnSchema(
                "item",
                "int64",
                tags=("categorical",),
                properties={**JOINT, "domain": {"name": "item"}},
            ),
            ColumnSchema(
                "recent", "int64", True, tags=("categorical",), properties={**own, **more}
            ),
        ]
    )


def test_a_count_and_a_domain_of_the_users_own_words_say_nothing():
    words = Schema(c.with_(properties={**JOINT, "domain": "a.com"}) for c in schema().columns)
    model = models.bst(words, sequence="recent", target="item", length=5, **SMALL)
    assert model.input["recent"].shape == (None, 5)
    with pytest.raises(TrainingError, match="Received: length=None"):
        models.bst(schema("few"), sequence="recent", target="item", **SMALL)


def test_the_schema_states_the_length(tmp_path):
    model = models.bst(schema({"min": 5, "max": 5}), sequence="recent", target="item", **SMALL)
    assert model.input["recent"].shape == (None, 5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    given = {"recent": np.array([[3, 4, 5, 0, 0]]), "item": np.array([[6]])}
    np.testing.assert_array_equal(loaded.predict_on_batch(given), model.predict_on_batch(given))


@pytest.mark.parametrize(
    ("features", "options", "message"),
    [
        (SIZES, {"sequence": "item"}, r"lists, recent, tags.*Received: sequence='item'"),
        (SIZES, {"target": "tags"}, "single ids, item, user.*target='tags'"),
        (SIZES, {"target": "user"}, "one vocabulary.*joint.*Received: 40 and 9 ids"),
        (
            schema({"min": 5, "max": 5}, "other"),
            {},
            "one vocabulary.*those of 'other' and of 'item'",
        ),
        (SIZES, {}, "length of the sequence.*length=None"),
        (schema({"min": 0, "max": 5}), {}, r"ListSlice\(-20, pad=True\).*length=None"),
        (SIZES, {"length": 0}, "length=0"),
        (SIZES, {"length": 3, "blocks": 0}, "blocks as a whole number from 1. Received: 0"),
        (SIZES, {"length": 3, "embedding_dim": "8"}, "embedding_dim as a whole number.*'8'"),
        (SIZES, {"length": 3, "dropout": 2}, "dropout from 0 to 1. Received: .*dropout=2"),
        (SIZES, {"length": 3, "max_embedding_dim": "8"}, "max_embedding_dim as a whole number"),
        (SIZES, {"length": 3, "heads": 3}, "multiple of heads. Received: embedding_dim=8, heads=3"),
    ],
)
def test_arguments_that_make_no_sense(features, options, message):
    given = {"sequence": "recent", "target": "item", **SMALL, **options}
    with pytest.raises(TrainingError, match=message):
        models.bst(features, **given)
