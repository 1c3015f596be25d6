"""Models of a newer fit that begin with the weights of an earlier one."""

import keras
import numpy as np
import pytest

from training import TrainingError, layers, models, retrieval, train, warm_start
from workflow import ColumnSelector, Workflow, get_embedding_sizes, ops

# Of each column the most frequent value is another one on Tuesday; "y" goes and "z" comes.
MONDAY = {
    "user": [7, 7, 7, 8, 8, 9],
    "item": ["x", "x", "x", "y", "y", None],
    "tags": [["p", "q"], ["p"], [], ["q"], ["p"], []],
    "age": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
}
TUESDAY = {
    "user": [9, 9, 9, 8, 8, 7, 70_000],
    "item": ["z", "z", "z", "x", None, "w", "w"],
    "tags": [["q", "q"], ["q"], ["p"], [], ["r"], [], []],
    "age": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0],
}
ROWS = {
    "user": [7, 8, 9, None],
    "item": ["x", "x", None, "never seen"],
    "tags": [["p"], ["q", "p"], [], ["q"]],
    "age": [1.0, 2.0, 3.0, 4.0],
}


def fit(data, columns=("user", "item", "tags"), **options):
    outputs = [*columns] >> ops.Categorify(**options)
    return Workflow(outputs + (["age"] >> ops.Clip(0, 10) >> ops.AddTags("continuous"))).fit(data)


@pytest.fixture(scope="module")
def monday():
    return fit(MONDAY)


@pytest.fixture(scope="module")
def tuesday():
    return fit(TUESDAY)


def noisy(model, seed=0):
    """The model with other values everywhere, also where weights start at zero."""
    random = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(random.normal(size=variable.shape))
    return model


def batch(workflow, model, rows=ROWS):
    """Rows as the model takes them, a list as values and row lengths."""
    frame = workflow.transform(rows).collect()
    found = {}
    for name, given in model.input.items():
        column = frame[name]
        if isinstance(given, (tuple, list)):
            values = column.explode(empty_as_null=False).to_numpy()
            found[name] = (values.reshape(-1, 1), column.list.len().to_numpy().reshape(-1, 1))
        else:
            found[name] = column.to_numpy().reshape(-1, 1)
    return found


def of_values(workflow, column, vectors):
    """Value -> its vector; of what is no value the kind."""
    ids = workflow.reverse_mapping(column)
    names = [v if k == "value" else k for k, v in ids.select("kind", "value").iter_rows()]
    return dict(zip(names, np.asarray(vectors)[ids["id"].to_numpy()].tolist(), strict=True))


MODELS = {
    "mlp": lambda schema: models.mlp(schema, hidden=[4], max_embedding_dim=16),
    "wide_and_deep": lambda schema: models.wide_and_deep(schema, hidden=[4]),
    "dlrm": lambda schema: models.dlrm(schema, embedding_dim=4, bottom=[4], top=[4]),
    "two_tower": lambda schema: models.two_tower(
        schema, query=["user", "age"], candidate=["item", "tags"], hidden=[4], width=4
    ),
}


@pytest.mark.parametrize("kind", MODELS)
def test_known_rows_are_scored_as_before(kind, monday, tuesday):
    earlier, model = noisy(MODELS[kind](monday.output_schema)), MODELS[kind](tuesday.output_schema)
    expected = earlier(batch(monday, earlier))
    assert np.abs(model(batch(tuesday, model)) - expected).max() > 1e-3
    found = warm_start(model, tuesday, earlier=earlier, earlier_workflow=monday)
    np.testing.assert_allclose(model(batch(tuesday, model)), expected, rtol=1e-5)
    assert found.columns == {"user": (6, 7), "item": (4, 6), "tags": (5, 6)}
    assert not found.anew


def test_new_values_keep_the_vectors_of_the_model(monday, tuesday):
    earlier, model = (
        noisy(models.mlp(each.output_schema, hidden=[4]), seed)
        for seed, each in enumerate((monday, tuesday))
    )
    layer, earlier_layer = model.layers[-3], earlier.layers[-3]
    before = of_values(tuesday, "item", layer.embedding_tables["item"])
    known = of_values(monday, "item", earlier_layer.embedding_tables["item"])
    warm_start(model, tuesday, earlier=earlier, earlier_workflow=monday)
    after = of_values(tuesday, "item", layer.embedding_tables["item"])
    assert {*known} - {*after} == {"y"}
    assert after == before | {name: known[name] for name in known if name != "y"}


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ([["user", "item"], "tags"], {"encode_type": "combo"}),
        ([["user", "item"], "tags"], {"encode_type": "joint"}),
        (["user", "item", "tags"], {"single_table": True}),
        (["user", "item", "tags"], {"num_buckets": 3, "max_size": 9}),
    ],
)
def test_other_vocabularies(columns, options):
    data = [
        {**each, "item": ["x"] * len(each["age"]), "user": [str(user) for user in each["user"]]}
        for each in (MONDAY, TUESDAY)
    ]
    rows = {**ROWS, "user": ["7", "8", "9", "7"], "item": ["x"] * 4}
    before, after = (fit(each, columns, **options) for each in data)
    earlier = noisy(models.mlp(before.output_schema, hidden=[4]))
    model = models.mlp(after.output_schema, hidden=[4])
    warm_start(model, after, earlier=earlier, earlier_workflow=before)
    expected = earlier(batch(before, earlier, rows))
    np.testing.assert_allclose(model(batch(after, model, rows)), expected, rtol=1e-5)


def own_model(workflow, bag="item"):
    """A table of each kind that takes single ids, and the column of ours."""
    sizes = {name: rows for name, (rows, _) in get_embedding_sizes(workflow)[0].items()}
    inputs = {name: keras.Input((1,), name=name, dtype="int64") for name in ("user", "item")}
    parts = [
        layers.EmbeddingBag(sizes[name], width)(inputs[name])
        if name == bag
        else keras.layers.Flatten()(keras.layers.Embedding(sizes[name], width)(inputs[name]))
        for name, width in (("user", 3), ("item", 2))
    ]
    hidden = keras.layers.BatchNormalization()(keras.layers.Concatenate()(parts))
    return keras.Model(inputs, keras.layers.Dense(1)(hidden))


def test_a_table_of_keras_takes_the_place_of_ours(monday, tuesday):
    """And the reverse; only one of them has a row for unknown ids."""
    earlier, model = noisy(own_model(monday)), own_model(tuesday, bag="user")
    warm_start(model, tuesday, earlier=earlier, earlier_workflow=monday)
    expected = earlier(batch(monday, earlier))
    np.testing.assert_allclose(model(batch(tuesday, model)), expected, rtol=1e-5)


def test_layers_of_keras_and_a_bag(monday, tuesday):
    earlier, model = noisy(own_model(monday)), own_model(tuesday)
    found = warm_start(model, tuesday, earlier=earlier, earlier_workflow=monday)
    expected = earlier(batch(monday, earlier))
    np.testing.assert_allclose(model(batch(tuesday, model)), expected, rtol=1e-5)
    unknown = np.array([[99]])  # takes the row for ids out of range
    bags = [
        next(i for i in each.layers if isinstance(i, layers.EmbeddingBag))
        for each in (model, earlier)
    ]
    np.testing.assert_array_equal(bags[0](unknown), bags[1](unknown))
    assert str(found).splitlines() == [
        "user: 6 of 7 ids begin with their earlier vectors",
        "item: 4 of 6 ids begin with their earlier vectors",
        "6 other variables begin with their earlier values",
    ]


def test_a_model_that_was_trained_is_compared_by_its_own_calls(monday, tuesday):
    """The split step calls layers that it does not copy behind copies of the others, too."""

    def model_of(workflow):
        user = keras.Input((1,), name="user", dtype="int64")
        rows, _ = get_embedding_sizes(workflow)[0]["user"]
        vectors = keras.layers.Flatten()(keras.layers.Embedding(rows, 3)(user))
        age = keras.Input((1,), name="age")
        hidden = keras.layers.Dense(4, "relu")(keras.layers.Concatenate()([vectors, age]))
        output = keras.layers.Dense(1)(keras.layers.BatchNormalization()(hidden))
        return keras.Model({"user": user, "age": age}, output)

    earlier, model = model_of(monday), model_of(tuesday)
    data = batch(monday, earlier)
    train(earlier, (data, np.ones((4, 1))), split=True)
    found = warm_start(model, tuesday, earlier=earlier, earlier_workflow=monday)
    expected = earlier(data)
    np.testing.assert_allclose(model(batch(tuesday, model)), expected, rtol=1e-5)
    assert not found.anew


def test_a_table_of_an_inner_model_moves_by_the_column_that_it_is_given(monday, tuesday):
    def model_of(workflow):
        sizes = get_embedding_sizes(workflow)[0]
        user, item = (keras.Input((1,), name=name, dtype="int64") for name in ("user", "item"))
        given = keras.Input((1,), name="item", dtype="int64")
        inner = keras.Model(given, keras.layers.Embedding(sizes["user"][0], 3)(given))
        own = keras.layers.Embedding(sizes["item"][0], 3)(item)
        output = keras.layers.Flatten()(keras.layers.Add()([inner(user), own]))
        return keras.Model({"user": user, "item": item}, output)

    earlier, model = noisy(model_of(monday)), model_of(tuesday)
    warm_start(model, tuesday, earlier=earlier, earlier_workflow=monday)
    expected = earlier(batch(monday, earlier))
    np.testing.assert_allclose(model(batch(tuesday, model)), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "has"),
    [
        (lambda model: model.quantize("int8"), "int8"),
        (lambda model: model.layers[1].enable_lora(2), "LoRA"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_a_table_whose_rows_are_not_its_vectors_is_refused(change, has):
    """A row of int8 has its scale in another variable, which would stay where it was."""
    days = [fit(each, ["user"]) for each in (MONDAY, {**MONDAY, "user": [9, 9, 9, 8, 8, 7]})]
    inputs = [keras.Input((1,), name="user", dtype="int64") for _ in days]
    earlier, model = (
        keras.Model(each, keras.layers.Flatten()(keras.layers.Embedding(6, 3)(each)))
        for each in inputs
    )
    for each in (earlier, model):
        change(each)
    before = model.get_weights()
    with pytest.raises(
        TrainingError, match=f"Expected tables whose rows are .* with {has}.*warm_start"
    ):
        warm_start(model, days[1], earlier=earlier, earlier_workflow=days[0])
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_a_sequence_and_its_target():
    def fitted(data):
        items = [["item", "recent"]] >> ops.Categorify(encode_type="joint")
        return Workflow(items["item"] + (items["recent"] >> ops.ListSlice(-2, pad=True))).fit(data)

    before = fitted({"item": ["x", "x", "y"], "recent": [["x"], ["y"], ["x"]]})
    after = fitted({"item": ["y", "y", "z"], "recent": [["z"], ["y"], ["x"]]})
    rows = {"item": ["x", "y"], "recent": [["y", "x"], ["x"]]}

    def model_of(workflow):
        return models.bst(
            workflow.output_schema, sequence="recent", target="item", embedding_dim=8, hidden=[4]
        )

    def scores(workflow, model):
        frame = workflow.transform(rows).collect()
        return model({name: np.array(frame[name].to_list()).reshape(2, -1) for name in model.input})

    earlier, model = noisy(model_of(before)), model_of(after)
    found = warm_start(model, after, earlier=earlier, earlier_workflow=before)
    np.testing.assert_allclose(scores(after, model), scores(before, earlier), rtol=1e-5)
    assert list(found.columns.values()) == [(5, 6)]


def test_sessions_of_items():
    """Groupby makes other rows of ids, which are those of the fit nevertheless."""

    def fitted(items):
        events = {"session": [1, 1, 2, 2], "item": items}
        ids = (["item"] >> ops.Categorify()) + ["session"]
        return Workflow((ids >> ops.Groupby("session"))["item_list"]).fit(events)

    before, after = fitted(["x", "x", "y", "x"]), fitted(["z", "y", "y", "x"])
    earlier, model = (noisy(models.mlp(each.output_schema, hidden=[4])) for each in (before, after))
    table = model.layers[-3].embedding_tables["item_list"].numpy()
    known = of_values(before, "item_list", earlier.layers[-3].embedding_tables["item_list"])
    expected = of_values(after, "item_list", table) | known
    warm_start(model, after, earlier=earlier, earlier_workflow=before)
    assert of_values(after, "item_list", model.layers[-3].embedding_tables["item_list"]) == expected


@pytest.mark.parametrize("kind", ["batch", "catalogue"])
def test_frequencies_move_with_the_items_and_a_catalogue_stays(kind, monday, tuesday):
    def model_of(workflow):
        items = workflow.reverse_mapping("item").select(item="id")
        softmax = {
            "batch": retrieval.InBatchSoftmax("item"),
            "catalogue": retrieval.SampledSoftmax("item", items, count=3),
        }[kind]
        schema = workflow.output_schema
        columns = type(schema)([schema["user"], schema["item"]])
        return models.two_tower(
            columns, query=["user"], candidate=["item"], hidden=[4], width=4, softmax=softmax
        )

    earlier, model = noisy(model_of(monday)), model_of(tuesday)
    own = next((each for each in model.layers if "sampled_items" in each.name), None)
    before = [] if own is None else [each.numpy() for each in own.weights]
    warm_start(model, tuesday, earlier=earlier, earlier_workflow=monday)
    if kind == "catalogue":
        assert before
        for weight, kept in zip(own.weights, before, strict=True):
            np.testing.assert_array_equal(weight, kept)
        return
    frequency, known = (each.get_layer("item_frequency") for each in (model, earlier))
    assert float(frequency.step) == float(known.step)
    for name in ("last", "interval"):
        after, was = (
            of_values(fitted, "item", getattr(layer, name))
            for fitted, layer in ((tuesday, frequency), (monday, known))
        )
        assert {after[value] == was[value] for value in ("x", "padding", "null")} == {True}
        assert after["w"] == 0


def test_what_begins_anew_is_named(tuesday):
    narrow = fit(MONDAY, ["user", "item"])
    earlier = noisy(models.mlp(narrow.output_schema, hidden=[4], max_embedding_dim=8))
    model = models.mlp(tuesday.output_schema, hidden=[4], max_embedding_dim=8)
    found = warm_start(model, tuesday, earlier=earlier, earlier_workflow=narrow)
    assert list(found.columns) == ["user", "item"]
    assert [*found.anew.values()] == [
        "the earlier model has no such table",
        "its shape is (25, 4), was (17, 4)",
    ]
    wider = models.mlp(tuesday.output_schema, hidden=[4], max_embedding_dim=9)
    found = warm_start(wider, tuesday, earlier=model, earlier_workflow=tuesday)
    assert not found.columns
    assert "begins anew: its vectors have the shape (9,), were (8,)" in str(found)


@pytest.mark.parametrize("kind", ["mlp", "wide_and_deep", "dlrm"])
@pytest.mark.parametrize(
    ("columns", "number"), [(["item", "user", "tags"], "age"), (["user", "item", "tags"], "weight")]
)
def test_layers_that_read_other_columns_of_the_same_widths_begin_anew(
    kind, columns, number, monday
):
    numbers = [number] >> ops.Clip(0, 10) >> ops.AddTags("continuous")
    fitted = Workflow((columns >> ops.Categorify()) + numbers).fit(
        {**MONDAY, "weight": MONDAY["age"]}
    )
    earlier, model = (
        noisy(MODELS[kind](each.output_schema), seed) for seed, each in enumerate((monday, fitted))
    )
    before = {variable.path: variable.numpy() for variable in model.weights}
    found = warm_start(model, fitted, earlier=earlier, earlier_workflow=monday)
    assert all(" in the place of " in reason for reason in found.anew.values())
    assert {"hidden_1/kernel", "top_1/kernel"} & {*found.anew}
    for variable in model.weights:
        if variable.path in found.anew:
            np.testing.assert_array_equal(variable, before[variable.path])


def test_a_layer_whose_columns_have_moved_begins_anew():
    """Widths of 3 and 4, and of 4 and 3: the sum, and so the shape of the next layer, is the same."""
    fits = [fit(data, ("user", "item")) for data in (MONDAY, TUESDAY)]

    def model_of(fitted, *widths):
        (user, _), (item, _) = get_embedding_sizes(fitted).values()
        sizes = {"user": (user, widths[0]), "item": (item, widths[1])}
        return noisy(models.mlp(sizes, ["age"], hidden=[4]), widths[0])

    earlier, model = model_of(fits[0], 3, 4), model_of(fits[1], 4, 3)
    found = warm_start(model, fits[1], earlier=earlier, earlier_workflow=fits[0])
    assert [reason for name, reason in found.anew.items() if name.endswith("1/kernel")] == [
        "its layer reads 'user' x 4 in the place of 'user' x 3"
    ]
    assert found.weights == 2


def test_ids_beyond_a_table_are_unknown_in_both(monday, tuesday):
    """Only id 8 of five has a vector on both days: 9 had none on Monday, and 7 has none on Tuesday."""

    def model_of(seed):
        columns = {name: keras.Input((1,), name=name, dtype="int64") for name in ("user", "item")}
        tables = layers.EmbeddingCollection({"user": (5, 2), "item": (5, 2)})
        return noisy(keras.Model(columns, tables(columns)), seed)

    earlier, model = model_of(0), model_of(1)
    before, now = (each.layers[-1].embedding_tables["user"].numpy() for each in (earlier, model))
    found = warm_start(model, tuesday, earlier=earlier, earlier_workflow=monday)
    assert found.columns["user"] == (4, 5)
    after = model.layers[-1].embedding_tables["user"].numpy()
    # Padding, null, unknown, 9 and 8.
    np.testing.assert_array_equal(after, [*before[:3], now[3], before[4]])


def test_an_equal_fit_moves_nothing(monday):
    earlier, model = (noisy(models.mlp(monday.output_schema, hidden=[4]), n) for n in (0, 1))
    warm_start(model, fit(MONDAY), earlier=earlier, earlier_workflow=monday)
    for weight, known in zip(model.weights, earlier.weights, strict=True):
        np.testing.assert_array_equal(weight, known)


def test_values_of_another_type_begin_anew():
    before, after = (
        Workflow(["n"] >> ops.Categorify()).fit({"n": n}) for n in ([1, 2], ["1", "2"])
    )
    earlier, model = (models.mlp(each.output_schema, hidden=[4]) for each in (before, after))
    found = warm_start(model, after, earlier=earlier, earlier_workflow=before)
    assert list(found.anew.values()) == ["the values of its ids are String, were Int64"]


IDS_OF_IDS = {
    "ids": lambda ids: ids["item"] >> ops.Categorify() >> ops.Rename(name="of_ids"),
    "computed": lambda ids: (
        ids["item"]
        >> ops.LambdaOp(lambda c: c % 5)
        >> ops.Categorify()
        >> ops.Rename(name="of_ids")
    ),
    "combination": lambda ids: (
        [ids[["item", "user"]]] >> ops.Categorify(encode_type="combo") >> ops.Rename(name="of_ids")
    ),
    "filtered": lambda ids: (
        ids
        >> ops.Filter(lambda rows: rows["item"] > 0)
        >> ops.Categorify()
        >> ops.Rename(f=lambda name: "of_ids" if name == "item" else name)
    )["of_ids"],
}


@pytest.mark.parametrize("kind", IDS_OF_IDS)
@pytest.mark.parametrize("apart", [False, True], ids=["one workflow", "two workflows"])
def test_a_vocabulary_of_the_ids_of_another_fit_begins_anew(kind, apart, tmp_path):
    """Its values are numbers that mean other items in each fit."""

    def fitted(day, data):
        ids = ["user", "item"] >> ops.Categorify()
        if not apart:
            return Workflow(IDS_OF_IDS[kind](ids)).fit(data)
        Workflow(ids).fit(data).transform_to_parquet(data, tmp_path / day)
        return Workflow(IDS_OF_IDS[kind](ColumnSelector(["user", "item"]))).fit(tmp_path / day)

    before, after = fitted("monday", MONDAY), fitted("tuesday", TUESDAY)
    earlier, model = (models.mlp(each.output_schema, hidden=[4]) for each in (before, after))
    found = warm_start(model, after, earlier=earlier, earlier_workflow=before)
    assert [*found.anew.values()] == ["the values of its ids are ids of another fit"]
    again = warm_start(model, after, earlier=model, earlier_workflow=after)
    assert not again.anew


def test_values_of_a_table_that_has_grown_keep_their_vectors():
    """The genres of a film mean themselves, whichever films the table has."""

    def fitted(films):
        genres = ["film"] >> ops.JoinExternal(films, on="film") >> ops.Categorify()
        return Workflow(genres["genre"]).fit({"film": films["film"]})

    before = fitted({"film": [1, 2], "genre": [7, 9]})
    after = fitted({"film": [1, 2, 3, 4], "genre": [7, 9, 9, 8]})
    earlier, model = (noisy(models.mlp(each.output_schema, hidden=[4])) for each in (before, after))
    found = warm_start(model, after, earlier=earlier, earlier_workflow=before)
    assert not found.anew
    assert found.columns == {"genre": (5, 6)}


def test_buckets_of_a_hash_stay_and_others_begin_anew():
    def model_of(buckets, **options):
        node = ["item"] >> ops.HashBucket(buckets, **options)
        fitted = Workflow(node).fit({"item": ["x", "y"]})
        return noisy(models.mlp(fitted.output_schema, hidden=[4]), buckets), fitted

    (earlier, before), (model, after) = model_of(8), model_of(8)
    model = noisy(model, 1)
    warm_start(model, after, earlier=earlier, earlier_workflow=before)
    np.testing.assert_array_equal(model.weights[0], earlier.weights[0])
    for further in (model_of(9), model_of(8, hash="farmhash")):
        other, workflow = further
        found = warm_start(other, workflow, earlier=earlier, earlier_workflow=before)
        assert [*found.anew] == [f"item in {other.weights[0].path}"]


@pytest.mark.parametrize("rows", [6, 8])
@pytest.mark.parametrize("facts", [{}, {"cardinality": 6}], ids=["unknown", "stated"])
def test_ids_of_the_raw_data_keep_their_vectors(rows, facts):
    """No fit has made them, so that an id means itself, also where the data has more of them now."""

    def model_of(rows, seed, facts):
        ids = ["user"] >> ops.AddMetadata([], facts)
        user = keras.Input((1,), name="user", dtype="int64")
        table = keras.layers.Embedding(rows, 3)
        model = keras.Model({"user": user}, table(user))
        return noisy(model, seed), Workflow(ids).fit({"user": [0, rows - 1]})

    (earlier, before), (model, after) = (
        model_of(6, 0, facts),
        model_of(rows, 1, facts and {"cardinality": rows}),
    )
    new = model.get_weights()[0][6:]
    found = warm_start(model, after, earlier=earlier, earlier_workflow=before)
    assert (found.columns, found.anew) == ({"user": (6, rows)}, {})
    np.testing.assert_array_equal(model.get_weights()[0], [*earlier.get_weights()[0], *new])


def test_models_and_workflows_that_do_not_belong_together(monday, tuesday):
    earlier, model = (models.mlp(f.output_schema, hidden=[4]) for f in (monday, tuesday))
    before = [weight.numpy() for weight in model.weights]
    with pytest.raises(
        TrainingError, match="Expected in earlier_workflow the fit that earlier was"
    ):
        warm_start(model, tuesday, earlier=earlier, earlier_workflow=tuesday)
    with pytest.raises(TrainingError, match="Expected in workflow the fit that model was made for"):
        warm_start(model, monday, earlier=earlier, earlier_workflow=monday)
    deeper = models.mlp(monday.output_schema, hidden=[4, 4])
    with pytest.raises(
        TrainingError, match="beside tables kernel, bias, kernel, bias in model, ker"
    ):
        warm_start(model, tuesday, earlier=deeper, earlier_workflow=monday)
    for weight, kept in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, kept)


def test_ids_outside_of_tables_do_not_move(monday, tuesday):
    def model_of(workflow):
        rows = get_embedding_sizes(workflow)[0]["user"][0]
        inputs = {"user": keras.Input((1,), name="user", dtype="int64")}
        ones = layers.DenseFeatures({}, indicators={"user": rows})(inputs)
        return keras.Model(inputs, keras.layers.Dense(1)(ones))

    with pytest.raises(TrainingError, match="Expected the ids of 'user' in a table alone"):
        warm_start(model_of(tuesday), tuesday, earlier=model_of(monday), earlier_workflow=monday)
