"""The written files answer golden rows as the workflow and the network do, or nothing is published."""

import re
from datetime import date

import keras
import numpy as np
import polars as pl
import pytest
import user_networks
from small_export import tree

from exporter import ExportError, ServingOptions
from exporter import export as export_module
from exporter.write.onnx.from_tensorflow import network as onnx_network
from workflow import Workflow, ops

LISTS = ("ids__values", "ids__nnzs")
# Some of them average empty lists.
pytestmark = pytest.mark.filterwarnings("ignore:The network makes NaN")

# By network, why ONNX does not take it; None where it does.
NO_STRINGS = "without strings"
NETWORKS = {
    "repeat_and_unsorted_segment_sum": None,
    "repeat_and_unsorted_segment_mean": None,
    "segment_mean": None,
    "keras_segment_sum": None,
    "ragged_reduce_mean": None,
    "means_without_a_guard": None,
    "masked_average": None,
    "flattened": None,
    "recurrent": None,
    "recurrent_with_a_mask": None,
    "bidirectional": None,
    "attention": None,
    "attention_with_a_mask": None,
    "convolution": None,
    "string_lookup": NO_STRINGS,
    "text_vectorization": NO_STRINGS,
    "hashing_of_strings": NO_STRINGS,
    "hashing_of_ids": "StringToHashBucketFast",
    "integer_lookup": "LookupTableFind",
    "category_encoding": None,
    "multi_hot": None,
    "discretization_and_normalization": None,
    "regularised": None,
    "unnormalised_numbers": None,
    "subclassed": None,
    "lambdas": None,
    "mixed_precision": None,
    "bfloat16": r"without bfloat16 for an ONNX runtime\. Received: functional\S+/\w+.*float32",
    "many_outputs": None,
    "best_of_three": None,
    "answer_in_words": "LookupTableFind",
    "top_of_a_list": None,
    "cumulated": None,
    "checked_by_itself": None,
}
USABLE = 'Use runtime="(fused_)?tensorflow"'


@pytest.fixture(scope="session")
def pipeline():
    return user_networks.make_workflow()


@pytest.fixture
def export_network(export, pipeline):
    def run(name, runtime, max_batch_size=0, onnxruntime=None, **options):
        keras.utils.set_random_seed(0)
        network = getattr(user_networks, name)() if isinstance(name, str) else name
        serving = ServingOptions(
            runtime=runtime, max_batch_size=max_batch_size, onnxruntime=onnxruntime
        )
        return export(network, pipeline, labels=[], serving=serving, **options)

    return run


# One of each reason; `make test-long` has the others, and each network alone.
REFUSED = ("string_lookup", "hashing_of_ids", "integer_lookup", "bfloat16")
# Their tolerance, or rows that they refuse, would be those of the networks beside them.
ALONE = ("mixed_precision", "unnormalised_numbers", "checked_by_itself", "bfloat16")
# Their layers or operations are in others.
CONTAINED = ("recurrent", "repeat_and_unsorted_segment_mean", "segment_mean", "keras_segment_sum")
CONTAINED += ("means_without_a_guard",)


def each(names, quick):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.long) for name in names]


def beside_others(taken):
    """The names of networks that a runtime takes, and that are proven in one export."""
    return [
        name for name, reason in NETWORKS.items() if name not in ALONE + CONTAINED and taken(reason)
    ]


def of_two(names, runtimes):
    """Half of the networks for each runtime."""
    return [(runtimes[odd], [n for n in names if len(n) % 2 == odd]) for odd in (0, 1)]


@pytest.fixture
def export_together(export_network):
    def run(names, *arguments, **options):
        keras.utils.set_random_seed(0)
        networks = {name: getattr(user_networks, name)() for name in names}
        return export_network(user_networks.together(networks), *arguments, **options)

    return run


# Of the others it is seen when ONNX has answered all golden rows.
@pytest.mark.parametrize("name", each([name for name, reason in NETWORKS.items() if reason], ALONE))
def test_tensorflow_answers_what_onnx_cannot_express(name, export_network):
    report = export_network(name, "fused_tensorflow" if len(name) % 2 else "tensorflow")
    assert report.proof.difference < 1e-5
    assert {"zeros", "largest values"} <= {*report.proof.rows}


@pytest.mark.parametrize("name", each(NETWORKS, (*REFUSED, *ALONE)))
def test_onnx_answers_a_network_or_says_who_does(name, export_network, tmp_path):
    runtime, reason = "fused_onnx" if len(name) % 2 else "onnx", NETWORKS[name]
    if reason is None:
        report = export_network(name, runtime, max_batch_size=16)
        assert report.proof.asked == ("asked alone", "asked in one request", "joined by the server")
        return
    with pytest.raises(ExportError, match=rf"(?s){reason}.*{USABLE}"):
        export_network(name, runtime, max_batch_size=16)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("runtime", "names"),
    of_two(beside_others(lambda reason: reason is None), ("onnx", "fused_onnx")),
    ids=["onnx", "fused_onnx"],
)
def test_onnx_answers_networks_beside_each_other(runtime, names, export_together):
    report = export_together(names, runtime, max_batch_size=16)
    assert report.proof.asked == ("asked alone", "asked in one request", "joined by the server")


@pytest.mark.parametrize(
    ("runtime", "names"),
    of_two(beside_others(lambda reason: reason), ("tensorflow", "fused_tensorflow")),
    ids=["tensorflow", "fused_tensorflow"],
)
def test_tensorflow_answers_networks_beside_each_other(runtime, names, export_together):
    report = export_together(names, runtime)
    assert report.proof.difference < 1e-5
    assert {"zeros", "largest values"} <= {*report.proof.rows}


@pytest.mark.parametrize(
    ("runtime", "name"),
    [
        ("tensorflow", "softmax_over_the_batch"),
        ("fused_onnx", "place_in_the_batch"),
        pytest.param("onnx", "softmax_over_the_batch", marks=pytest.mark.long),
        pytest.param("fused_tensorflow", "place_in_the_batch", marks=pytest.mark.long),
    ],
)
def test_a_network_that_uses_the_other_rows_of_its_batch(runtime, name, export_network, tmp_path):
    """Joined requests are those of different clients."""
    with pytest.raises(
        ExportError, match=r"max_batch_size=16 .*golden row .* alone, and another.*max_batch_size=0"
    ):
        export_network(name, runtime, max_batch_size=16)
    assert not (tmp_path / "models").exists()
    with pytest.warns(
        UserWarning, match="differently alone and beside other rows.*evaluation mode"
    ):
        export_network(name, runtime)


@pytest.mark.parametrize(
    ("runtime", "batch"),
    [pytest.param("onnx", 0, marks=pytest.mark.long), ("fused_onnx", 16)],
)
def test_a_refused_network_leaves_the_repository_as_it_was(
    runtime, batch, export_network, monkeypatch, tmp_path
):
    """A 0 in a shape is the size of before for onnxruntime, which fails at an empty list if nothing is done."""
    export_network("flattened", runtime, batch)
    before = tree(tmp_path)
    monkeypatch.delitem(onnx_network.HANDLERS, "Reshape")
    with pytest.raises(ExportError, match="empty lists") as refused:
        export_network("repeat_and_unsorted_segment_sum", runtime, batch, version=2)
    assert "{'genres': []}" in str(refused.value)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("runtime", "batch"),
    [
        ("tensorflow", 0),
        pytest.param("onnx", 16, marks=pytest.mark.long),
        ("fused_onnx", 16),
        pytest.param("fused_tensorflow", 0, marks=pytest.mark.long),
    ],
)
def test_the_files_themselves_are_asked(runtime, batch, export_network, monkeypatch, tmp_path):
    """Weights that change after they were written are told from those that were, be it one of several."""
    given = user_networks.inputs("recent")
    flat = keras.layers.Flatten()(user_networks.vectors(given))
    network = keras.Model(given, {"score": keras.layers.Dense(3)(flat)})
    prove = export_module.prove_written

    def train_and_prove(*arguments):
        bias = network.layers[-1].bias
        bias.assign(bias + [0.0, 0.01, 0.0])
        return prove(*arguments)

    monkeypatch.setattr(export_module, "prove_written", train_and_prove)
    with pytest.raises(ExportError, match=r"output 'score' to be .*Received: .*asked alone"):
        export_network(network, runtime, batch)
    assert not (tmp_path / "models").exists()


def test_another_answer_is_refused_with_the_row_and_both(export_network, monkeypatch, tmp_path):
    """tf2onnx rounds quotients towards zero; without the conversion of ours they differ."""
    monkeypatch.delitem(onnx_network.HANDLERS, "FloorDiv")
    given = user_networks.inputs("clicks")
    third = keras.layers.Identity(name="third", dtype="int64")(given["clicks"] // 3)
    with pytest.raises(ExportError) as refused:
        export_network(keras.Model(given, third), "onnx", onnxruntime="1.31")
    text = str(refused.value)
    assert "output 'third' to be -3" in text
    assert "{'clicks': -7} (negative numbers)" in text
    assert "Received: -2 from the written files, asked alone" in text
    assert 'Use runtime="tensorflow", which answers all of them.' in text
    assert not (tmp_path / "models").exists()


def test_whole_numbers_that_no_float_holds_are_proven(export, monkeypatch):
    """tf2onnx' mean of whole numbers is one of floats."""
    data = {"ids": [[7, 8], [9]], "day": [1, 2]}
    workflow = Workflow(["ids"] + (["day"] >> ops.Categorify())).fit(data)
    given = {name: keras.Input((1,), name=name, dtype="int64") for name in ("day", *LISTS)}

    class Mean(keras.layers.Layer):
        def call(self, ids, lengths):
            import tensorflow as tf

            ids = tf.RaggedTensor.from_row_lengths(ids[:, 0], lengths[:, 0]).to_tensor(
                shape=[None, 4]
            )
            return tf.reduce_mean(ids, 1, keepdims=True)

        def compute_output_spec(self, *_):
            return keras.KerasTensor((None, 1), "int64")

    mean = Mean(dtype="int64", autocast=False)(*(given[name] for name in LISTS))
    network = keras.Model(
        given, {"mean": mean, "known": keras.layers.Identity(dtype="int64")(given["day"])}
    )
    options = ServingOptions(runtime="fused_onnx")
    report = export(network, workflow, labels=[], serving=options)
    row = report.plan.golden.row("whole numbers beyond 2**53")
    assert row == {"ids": [2**59 + 63, 2**59 + 61, 2**59 + 58], "day": 1}
    monkeypatch.delitem(onnx_network.HANDLERS, "Mean")
    exact, rounded = 3 * 2**57 + 45, 3 * 2**57
    expected = rf"(?s)'mean' to be {exact}, .*beyond 2\*\*53\).*Received: {rounded} "
    with pytest.raises(ExportError, match=expected):
        export(network, workflow, labels=[], serving=options, version=2)


def test_another_feature_is_refused_with_the_row_and_both(export_network, monkeypatch, tmp_path):
    """A step that forgets the network's vocabulary is seen before the network hides it."""
    prove = of_another_program(export_module.prove_written)
    monkeypatch.setattr(export_module, "prove_written", prove)
    with pytest.raises(ExportError, match=r"feature 'recent' to be .*Received: .*from the written"):
        export_network("masked_average", "tensorflow")
    assert not (tmp_path / "models").exists()


def of_another_program(prove):
    def change_and_prove(plan, answers, folders):
        program = folders["movies_nvt"] / "program.json"
        if program.exists():  # another runtime is asked as well, and has none
            text = program.read_text()
            another = re.sub(r'"first": ?3', '"first":2', text)
            assert another != text
            program.write_text(another)
        return prove(plan, answers, folders)

    return change_and_prove


def test_the_network_may_refuse_what_no_data_may_hold(export_network):
    report = export_network("checked_by_itself", "tensorflow")
    assert report.proof.refused == ("largest values", "smallest values")
    assert "Not proven: largest values, smallest values" in str(report)
    assert "proven with: zeros, usual values, nulls" in str(report)


@pytest.mark.parametrize("least", [None, 0.0, 0.5], ids=["finite", "to 1", "from 0.5 to 1"])
def test_the_network_may_check_its_inputs_to_the_last_digit(least, export):
    import tensorflow as tf

    class Checked(keras.layers.Layer):
        def call(self, x):
            if least is None:
                return tf.debugging.check_numerics(x, "x")
            tf.debugging.assert_less_equal(x, 1.0)
            tf.debugging.assert_greater_equal(x, least)
            return x * 1.0

    features = ["x"] >> ops.FillMissing(0.5)
    if least is not None:
        features = features >> ops.Clip(min_value=least, max_value=1.0)
    data = pl.DataFrame({"x": [0.5, 0.75, 1.0]}, schema={"x": pl.Float32})
    pipeline = Workflow(features).fit(data)
    x = keras.Input((1,), name="x", dtype="float32")
    network = keras.Model({"x": x}, {"y": keras.layers.Dense(1)(Checked()(x))})
    if least:  # The server would ask the network for features of zeros, and not load it.
        with pytest.raises(
            ExportError, match=r"(?s)warms it up.*x >= y.*golden_rows=.*warm_up=False"
        ):
            export(network, pipeline, labels=[])
    for options in [{"golden_rows": {"x": [0.0]}}, {"warm_up": False}] if least else [{}]:
        report = export(network, pipeline, labels=[], serving=ServingOptions(**options))
        assert "largest values" in report.proof.rows
        assert report.proof.refused == ()


def test_the_network_may_not_refuse_what_a_client_may_send(export_network, tmp_path):
    given = user_networks.inputs("genres__values", "genres__nnzs")

    class Strict(keras.layers.Layer):
        def call(self, pair):
            keras_values, lengths = pair
            import tensorflow as tf

            tf.debugging.assert_positive(lengths)
            return tf.cast(lengths, "float32") + 0.0 * tf.cast(
                tf.reduce_sum(keras_values), "float32"
            )

        def compute_output_shape(self, shapes):
            return shapes[1]

    network = user_networks.scored(given, Strict()([*given.values()]))
    with pytest.raises(ExportError, match=r"\{'genres': \[\]\} \(empty lists\).*without a server"):
        export_network(network, "tensorflow")
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("options", [{}, {"golden_rows": {"x": [1.0]}}], ids=["", "with rows"])
def test_a_row_of_zeros_has_an_answer(options, export, tmp_path):
    """Health checks ask for it, also those of a server that is warmed up with the user's rows."""
    import tensorflow as tf

    class Positive(keras.layers.Layer):
        def call(self, x):
            tf.debugging.assert_positive(x)
            return x * 2.0

    x = keras.Input((1,), name="x")
    network = keras.Model({"x": x}, {"y": Positive()(x)})
    workflow = Workflow(["x"] >> ops.FillMissing(1.0)).fit({"x": [1.0, 2.0]})
    with pytest.raises(
        ExportError, match=r"\{'x': 0\.0\} \(zeros\).*Health checks ask for such a row"
    ):
        export(network, workflow, labels=[], serving=ServingOptions(**options))
    assert not (tmp_path / "models").exists()


def test_golden_rows_of_ones_own_are_proven_as_well(export, pipeline):
    golden = user_networks.rows().head(2)
    options = ServingOptions(golden_rows=golden)
    report = export(user_networks.masked_average(), pipeline, labels=[], serving=options)
    assert report.proof.rows[:4] == ("golden_rows[0]", "golden_rows[1]", "zeros", "usual values")
    assert report.plan.golden.frame["recent"][:2].to_list() == golden["recent"].to_list()
    assert [len(model.warm_up) for model in report.plan.steps] == [2, 2]


def test_golden_rows_hold_the_edges_of_every_column(export):
    data = pl.DataFrame(
        {
            "word": ["b", "a", "b"],
            "number": pl.Series([5, 9, 5], dtype=pl.Int16),
            "words": [["x"], ["y", "x"], []],
        }
    )
    workflow = Workflow(["word", "number", "words"] >> ops.Categorify()).fit(data)
    given = {
        name: keras.Input((1,), name=name, dtype="int64")
        for name in ("word", "number", "words__values", "words__nnzs")
    }
    sums = [keras.ops.cast(given[name], "float32") for name in ("word", "number", "words__nnzs")]
    rest = 0.0 * keras.ops.sum(keras.ops.cast(given["words__values"], "float32"))
    network = user_networks.scored(given, sum(sums) + rest)
    golden = export(network, workflow, labels=[]).plan.golden
    rows = {name: golden.row(name) for name in golden.names}
    assert rows["zeros"] == {"word": "", "number": 0, "words": [""]}
    assert rows["usual values"] == {"word": "b", "number": 5, "words": ["x"]}
    assert rows["last values 1"] == {"word": "a", "number": 9, "words": ["y"]}
    assert rows["nulls"] == {"word": None, "number": None, "words": [None]}
    assert rows["empty lists"]["words"] == []
    assert rows["unseen values"]["number"] == 10
    assert rows["unseen values"]["word"] not in data["word"].to_list()
    assert len(rows["long lists"]["words"]) == 50
    limits = np.iinfo("int16")
    # The least is what stands for null.
    assert rows["smallest values"]["number"] == limits.min + 1
    assert rows["largest values"]["number"] == limits.max


def test_golden_rows_of_every_kind_of_time(export):
    days = pl.date_range(date(2024, 1, 1), date(2024, 1, 3), eager=True)
    data = pl.DataFrame(
        {
            "day": days,
            "naive": days.cast(pl.Datetime("us")),
            "zoned": days.cast(pl.Datetime("ns")).dt.replace_time_zone("Asia/Tokyo"),
            "days": [[day] for day in days],
        }
    )
    parts = ["naive", "zoned"] >> ops.DatePart(["hour"]) >> ops.FillMissing(0)
    workflow = Workflow((["day", "days"] >> ops.Categorify()) + parts).fit(data)
    given = {
        name: keras.Input((1,), name=name, dtype="int64")
        for name in ("day", "naive_hour", "zoned_hour", "days__nnzs", "days__values")
    }
    whole = 0.0 * keras.ops.sum(keras.ops.cast(given["days__values"], "float32"))
    rest = [
        keras.ops.cast(tensor, "float32") for name, tensor in given.items() if "val" not in name
    ]
    report = export(user_networks.scored(given, sum(rest) + whole), workflow, labels=[])
    frame = report.plan.golden.frame
    assert frame.schema == pl.Schema(
        {
            "day": pl.Date,
            "days": pl.List(pl.Date),
            "naive": pl.Datetime("us"),
            "zoned": pl.Datetime("us", "Asia/Tokyo"),
        }
    )
    assert report.plan.golden.row("unseen values")["day"] == date(2024, 1, 4)
    assert report.plan.golden.row("last values 1")["days"] == [date(2024, 1, 3)]


def test_limits_hold_for_golden_rows_too(export, pipeline):
    options = ServingOptions(max_list_length=3, max_string_bytes=8, max_rows=2)
    golden = export(user_networks.flattened(), pipeline, labels=[], serving=options).plan.golden
    assert golden.frame["recent"].list.len().max() == 3


def test_numbers_that_the_workflow_refuses_are_not_served(export):
    """Half of the largest number has no room in the dtype that was assigned; a server would cut it."""
    workflow = Workflow(["clicks"] >> ops.LambdaOp(lambda clicks: clicks // 2)).fit(
        user_networks.rows()
    )
    workflow.output_dtypes["clicks"] = "int32"
    given = {"clicks": keras.Input((1,), name="clicks", dtype="int32")}
    network = user_networks.scored(given, keras.ops.cast(given["clicks"], "float32"))
    with pytest.raises(ExportError, match=r"'clicks' is computed as int64.*Received: int32"):
        export(network, workflow, labels=[])
