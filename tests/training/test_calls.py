"""Tables and columns are found through models inside a model, and not through other models."""

import keras
import pytest

from training.calls import Calls
from training.initial_weights.reads import reads_of
from training.table_sizes import tables_of


def ids(name):
    return keras.Input((1,), name=name, dtype="int64")


def tables(model):
    return [(column, rows) for _, column, rows in tables_of(model)]


def encoder(name, rows):
    given = ids(name)
    vectors = keras.layers.Flatten()(keras.layers.Embedding(rows, 4)(given))
    return keras.Model(given, vectors, name="encoder")


def test_an_inner_model_reads_the_column_that_it_is_given():
    home, away = ids("home"), ids("away")
    inner = encoder("away", 5)  # the name of another column
    own = keras.layers.Flatten()(keras.layers.Embedding(9, 4)(away))
    output = keras.layers.Dense(1)(keras.layers.Concatenate()([inner(home), own]))
    assert sorted(tables(keras.Model([home, away], output))) == [("away", 9), ("home", 5)]


@pytest.mark.filterwarnings("ignore:When providing")
@pytest.mark.parametrize("names", [("away", "home"), ("home", "away"), ("first", "second")])
def test_columns_of_an_inner_model_go_by_their_names(names):
    home, away = ids("home"), ids("away")
    parts = {key: ids(name) for key, name in zip(("away", "home"), names, strict=True)}
    sizes = {"away": 9, "home": 5}
    vectors = {
        key: keras.layers.Flatten()(keras.layers.Embedding(sizes[key], 4)(given))
        for key, given in parts.items()
    }
    inner = keras.Model(parts, vectors)({"home": home, "away": away})
    output = keras.layers.Dense(1)(keras.layers.Concatenate()([*inner.values()]))
    model = keras.Model({"home": home, "away": away}, output)
    assert sorted(tables(model)) == [("away", 9), ("home", 5)]


def test_a_tower_that_is_called_twice_reads_both_columns_also_two_models_deep():
    home, away = ids("home"), ids("away")
    given = ids("team")
    tower = keras.Sequential([keras.Input((1,), dtype="int64"), encoder("team", 7)])
    outer = keras.Model(given, tower(given))
    output = keras.layers.Dot(1)([outer(home), outer(away)])
    assert sorted(tables(keras.Model([home, away], output))) == [("away", 7), ("home", 7)]


def test_a_table_that_other_models_share_reads_the_column_of_this_one():
    table = keras.layers.Embedding(5, 4)
    models = [
        keras.Model(given, keras.layers.Dense(1)(keras.layers.Flatten()(table(given))))
        for given in (ids("before"), ids("now"))
    ]
    assert [tables(model) for model in models] == [[("before", 5)], [("now", 5)]]


def test_a_model_of_ones_own_class_reads_the_inputs_of_the_models_inside_it():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder = encoder("home", 5)

        def call(self, x):
            return self.encoder(x["home"])

    assert tables(Own()) == [("home", 5)]


def test_models_that_share_their_inputs():
    home = ids("home")
    inner = keras.Model(home, keras.layers.Flatten()(keras.layers.Embedding(5, 4)(home)))
    for given in (home, keras.layers.Reshape((1,))(home)):
        assert tables(keras.Model(home, keras.layers.Dense(1)(inner(given)))) == [("home", 5)]


def test_a_model_inside_a_layer_reads_what_its_inputs_are_named_after():
    class Wrapped(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.encoder = encoder("home", 5)

        def call(self, x):
            return self.encoder(x)

    home = ids("home")
    assert tables(keras.Model(home, Wrapped()(home))) == [("home", 5)]


def test_weights_of_a_lookup_are_no_ids():
    class Weighted(keras.layers.Embedding):
        def call(self, inputs, weights):
            return super().call(inputs) * weights[..., None]

        def compute_output_spec(self, inputs, _weights):
            return super().compute_output_spec(inputs)

    home, share = ids("home"), keras.Input((1,), name="share")
    model = keras.Model([home, share], keras.layers.Flatten()(Weighted(5, 4)(home, share)))
    assert tables(model) == [("home", 5)]


def test_a_layer_reads_no_columns_of_a_copy_that_shares_it():
    price, age = keras.Input((1,), name="price"), keras.Input((1,), name="age")
    hidden = keras.layers.Dense(2)(price)
    shared = keras.layers.BatchNormalization()
    model = keras.Model([price, age], shared(keras.layers.Concatenate()([hidden, age])))
    before = [reads.columns for reads in reads_of(model, model.weights, {})]
    keras.Model([price, age], shared(keras.layers.Concatenate()([price, price, age])))
    assert [reads.columns for reads in reads_of(model, model.weights, {})] == before
    assert len(Calls(model).of(shared)) == 1
