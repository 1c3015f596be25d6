"""`ensemble train` with its options, and what it says of wrong ones before work begins."""

import contextlib
import errno
import json
import os
import re
import shutil
import subprocess
import sys

import keras
import numpy as np
import polars as pl
import pytest
from ensemble_command import PROGRAM
from typer.testing import CliRunner
from worker_processes import tf_configs

from exporter.command_line.app import make_app
from exporter.command_line.commands.train import train
from exporter.command_line.user_code import load_object
from training import train as fit_model
from training.optimizers import SGD, Adagrad
from workflow import Workflow, ops


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A saved workflow, and what it made of rows whose label the columns tell."""
    folder = tmp_path_factory.mktemp("train_command")
    rows = pl.int_range(4_000, eager=True)
    pl.DataFrame(
        {
            "user": rows * 7_919 % 50,
            "tags": pl.Series([["a", "b"], ["c"], [], None]).gather(rows % 4),
            "age": (rows % 60).cast(pl.Float32),
            "clicked": (rows * 7_919 % 50 < 20).cast(pl.Int8),
        }
    ).write_parquet(folder / "rows.parquet")
    label = ["clicked"] >> ops.AddTags(["target"])
    columns = (["user", "tags"] >> ops.Categorify()) + (["age"] >> ops.Normalize())
    workflow = Workflow(columns + label)
    workflow.fit_transform_to_parquet(folder / "rows.parquet", folder / "train")
    workflow.save(folder / "workflow")
    (folder / "own.py").write_text("SIZE = 3\n")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """One of its own for each test, and the working folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    with contextlib.chdir(tmp_path):
        yield tmp_path


# A network and an optimizer that cost little, where no assertion is about them.
CHEAP = "--hidden 8 --optimizer sgd"


def run(arguments):
    return CliRunner().invoke(make_app(), ["train", *arguments.split()])


def done(arguments):
    result = run(arguments)
    assert result.exit_code == 0, result.output
    return result.output


def trained(path):
    return keras.saving.load_model(path)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("options", "layers"),
    [
        (
            "--model wide_and_deep --hidden 8,4 --model-option output_name=clicked --optimizer sgd",
            {"wide", "hidden_2", "clicked"},
        ),
        pytest.param(
            "--model dlrm --hidden 8 --optimizer adagrad", {"top_1"}, marks=pytest.mark.long
        ),
        pytest.param(
            "--model dcn --hidden 8 --dropout 0.1", {"hidden_1_dropout"}, marks=pytest.mark.long
        ),
        (f"--model two_tower --query user --query age --precision bfloat16 {CHEAP}", set()),
    ],
)
def test_a_model_by_its_name(options, layers):
    done(f"train --batch-size 1000 --embedding-dim 4 {options}")
    model = trained("model.keras")
    assert layers <= {layer.name for layer in model.layers}
    assert set(model.input) == {"user", "tags", "age"}


def test_a_column_without_a_tag_is_in_neither_tower(folder):
    """As it is no input of the other models."""
    columns = (["user"] >> ops.Categorify()) + (["age"] >> ops.Normalize()) + ["tags"]
    workflow = Workflow(columns + (["clicked"] >> ops.AddTags(["target"])))
    workflow.fit_transform_to_parquet("rows.parquet", folder / "towers")
    workflow.save(folder / "with_towers")
    words = f"--model two_tower --query user --batch-size 1000 {CHEAP}"
    done(f"towers --workflow with_towers {words}")
    assert set(trained("model.keras").input) == {"user", "age"}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("catalogue", ["", "--catalogue items.parquet"])
def test_a_softmax_over_items(catalogue):
    items = pl.read_parquet("train/*.parquet").select("tags", "age", "user").unique("user")
    items.write_parquet("items.parquet")
    words = f"--query tags --query age --softmax user {catalogue} --temperature 0.2 {CHEAP}"
    text = done(f"train --model two_tower --batch-size 1000 --embedding-dim 4 {words} --json")
    found = json.loads(text)
    assert found["network"] == "model.keras"
    assert found["samples"] == 4_000
    # The loss is no cross-entropy of pairs: with random weights it is about that of one in many.
    assert found["history"]["loss"][0] > 0
    assert "auc" not in found["history"]
    layers = trained("model.keras").layers
    (softmax,) = [layer for layer in layers if hasattr(layer, "temperature")]
    assert softmax.temperature == 0.2
    assert any(layer.name.startswith("sampled") for layer in layers) == bool(catalogue)


OF_A_FIXED_WIDTH = """
import keras

def make_model(workflow):
    inputs = {name: keras.Input((n,), name=name) for name, n in [("recent", 4), ("item", 1)]}
    joined = keras.layers.Concatenate()([*inputs.values()])
    return keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(joined))
"""


@pytest.mark.parametrize("model", ["bst --sequence recent --target item --embedding-dim 8", "own"])
def test_a_sequence_as_one_tensor(model, folder):
    (folder / "own.py").write_text(OF_A_FIXED_WIDTH)
    rows = pl.int_range(2_000, eager=True)
    lists = pl.Series([[1, 2, 3], [4], [], [2, 1, 3, 4, 2]]).gather(rows % 4)
    table = pl.DataFrame({"recent": lists, "item": rows % 5, "clicked": (rows % 4 == 0).cast(int)})
    ids = [["recent", "item"]] >> ops.Categorify(encode_type="joint")
    columns = ids["item"] + (ids["recent"] >> ops.ListSlice(-4, pad=True))
    workflow = Workflow(columns + (["clicked"] >> ops.AddTags(["target"])))
    workflow.fit_transform_to_parquet(table, folder / "sequences")
    workflow.save("sessions")
    words = "--model own.py --optimizer sgd" if model == "own" else f"--model {model} {CHEAP}"
    done(f"sequences --workflow sessions --batch-size 500 {words}")
    model = trained("model.keras")
    assert model.input["recent"].shape == (None, 4)


@pytest.mark.usefixtures("folder")
def test_the_options_reach_the_run():
    """The same weights as with `train` in Python, which leaves no option out."""
    options = (
        "--optimizer sgd --learning-rate 0.5 --class-weight 1=3 --loss binary_focal_crossentropy"
    )
    done(f"train --batch-size 500 --hidden 8 --seed 5 --epochs 2 {options}")
    from loader import KerasSequenceLoader
    from training import models

    keras.utils.set_random_seed(5)
    schema = Workflow.load("workflow").output_schema
    expected = models.mlp(schema.without(["clicked"]), hidden=[8], max_embedding_dim=64)
    data = KerasSequenceLoader("train", 500, ["clicked"], shuffle=True, seed=5)
    loss = "binary_focal_crossentropy"
    settings = {"optimizer": SGD(0.5), "loss": loss, "class_weight": {1: 3.0}, "metrics": []}
    fit_model(expected, data, epochs=2, **settings)
    model = trained("model.keras")
    for mine, others in zip(model.get_weights(), expected.get_weights(), strict=True):
        assert mine.tolist() == others.tolist()


TWO_OUTPUTS = """
import keras

def make_model(workflow):
    user = keras.Input((1,), name="user", dtype="int64")
    hidden = keras.layers.Flatten()(keras.layers.Embedding(53, 4)(user))
    return keras.Model({"user": user}, {
        "clicked": keras.layers.Dense(1, "sigmoid")(hidden), "age": keras.layers.Dense(1)(hidden),
    })
"""


def test_each_output_has_its_own_options(folder):
    """The same weights as with `train` in Python."""
    (folder / "two.py").write_text(TWO_OUTPUTS)
    columns = (["user"] >> ops.Categorify()) + ["clicked", "age"]
    workflow = Workflow(columns)
    workflow.fit_transform_to_parquet("rows.parquet", "pairs")
    workflow.save("pair")
    words = (
        "--loss clicked=binary_crossentropy --loss age=mse --loss-weight age=0.01 --metric age=mae"
    )
    more = "--class-weight clicked:1=3 --weighted-metric clicked=mse"
    more = f"{more} --optimizer sgd --learning-rate 0.5 --seed 5"
    place = "pairs --workflow pair --model two.py --label clicked --label age --batch-size 500"
    found = json.loads(done(f"{place} {words} {more} --json"))
    assert set(found["history"]) == {"age_loss", "age_mae", "clicked_loss", "clicked_mse", "loss"}

    keras.utils.set_random_seed(5)
    from loader import KerasSequenceLoader

    expected = load_object("two.py:make_model", "")(workflow)
    report = fit_model(
        expected,
        KerasSequenceLoader("pairs", 500, ["clicked", "age"], shuffle=True, seed=5),
        optimizer=SGD(0.5),
        loss={"clicked": "binary_crossentropy", "age": "mse"},
        loss_weights={"age": 0.01},
        class_weight={"clicked": {1: 3.0}},
        metrics=[],
        weighted_metrics={"clicked": ["mse"]},
    )
    assert tuple(found["history"]["clicked_mse"]) == report.history["clicked_mse"]
    for mine, others in zip(
        trained("model.keras").get_weights(), expected.get_weights(), strict=True
    ):
        assert mine.tolist() == others.tolist()


def test_a_run_that_is_followed_stopped_and_resumed(folder):
    options = (
        "--hidden 8 --validation train --tensorboard logs --checkpoint run --optimizer adagrad"
    )
    text = done(f"train --batch-size 500 --epochs 2 {options}")
    assert [line.split()[0] for line in text.splitlines()[:3]] == ["epoch", "1/2", "2/2"]
    assert "val_auc" in text
    assert list(folder.glob("logs/*/*tfevents*"))
    assert isinstance(trained("model.keras").optimizer, Adagrad)

    text = done(f"train --batch-size 500 --epochs 3 {options}")
    assert [line.split()[0] for line in text.splitlines()[:2]] == ["epoch", "3/3"]


@pytest.mark.long
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("shard", ["", "--model-option shard=row"])
def test_processes_with_tf_config_train_together(shard):
    """As one process with twice the batch, whose rows are the first one's and then the second's."""
    words = f"train --no-shuffle --epochs 2 --optimizer sgd --hidden 8 --json {shard}".split()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "train", *words, "--batch-size", "500"],
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(sys.path), "TF_CONFIG": json.dumps(config)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for config in tf_configs(2)
    ]
    outputs = [process.communicate(timeout=400)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    first, second = map(json.loads, outputs)
    assert [first.pop("network"), second.pop("network")] == ["model.keras", None]
    assert [first["samples"], second["samples"]] == [4_000, 4_000]  # half of the rows, twice
    assert first["history"] == second["history"]
    together = trained("model.keras")
    rows = pl.read_parquet("train/*.parquet")
    parts = [half.iter_slices(500) for half in (rows[:2_000], rows[2_000:])]
    pl.concat(part for pair in zip(*parts, strict=True) for part in pair).write_parquet(
        "joint.parquet"
    )
    done(f"joint.parquet {' '.join(words[1:])} --batch-size 1000 --output alone.keras")
    for own, expected in zip(
        together.get_weights(), trained("alone.keras").get_weights(), strict=True
    ):
        np.testing.assert_allclose(own, expected, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("folder")
def test_no_better_loss_ends_the_run():
    """A rate that leaves nothing to be bettered after the first epoch."""
    options = f"--validation train {CHEAP} --learning-rate 1e-30 --patience 1"
    text = done(f"train --batch-size 2000 --epochs 9 {options}")
    assert "2/9" in text
    assert "3/9" not in text


@pytest.mark.usefixtures("folder")
def test_ids_out_of_range_are_found():
    frame = pl.read_parquet("train/*.parquet").with_columns(user=pl.lit(99, pl.Int64))
    frame.write_parquet("wrong.parquet")
    result = run(f"wrong.parquet --batch-size 4000 --validate-ids {CHEAP}")
    assert result.exit_code == 1
    assert "Expected ids of column user in 0 .. 52." in result.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            "--output model.h5",
            "Expected an output that ends with .keras, or a folder for a SavedModel.",
        ),
        ("--output train", "Expected a file in a folder that exists. Received: 'train'."),
        ("--output none/model.keras", "Expected a file in a folder that exists."),
        (
            "--output s3://shop/model.keras",
            "path of this machine. Received: 's3://shop/model.keras'.",
        ),
        ("--patience 2", "Expected --validation, whose loss --patience compares."),
        ("--class-weight 1:20", "Expected --class-weight as LABEL=WEIGHT, such as 1=20,"),
        ("--class-weight 1=2 --class-weight 1=3", "--class-weight once for 1. Received: twice."),
        ("--class-weight 1=-1", "of label -> finite weight of at least 0."),
        ("--model wide_deep", "Received: wide_deep. Did you mean 'wide_and_deep'?"),
        ("--model resnet", "Expected a --model among mlp, wide_and_deep, dlrm, dcn, two_tower"),
        ("--model-option cross_layers=3", "Expected --model-option NAME=VALUE, the name among"),
        ("--model-option hidden=8", "Received: 'hidden=8'."),
        (
            "--model dcn --model-option cross_layers=many",
            "dcn needs cross_layers as a whole number. Received: 'many'.",
        ),
        ("--model two_tower", "Expected --query, the columns of the first tower"),
        ("--model two_tower --query usr", "either in query or in candidate"),
        ("--query user", "Received: --model mlp, --query user."),
        ("--model bst --target user", "Expected --sequence, the list of items, with --model bst"),
        ("--sequence tags", "Received: --model mlp, --sequence tags."),
        ("--softmax user", "Expected --softmax with --model two_tower. Received: --model mlp."),
        ("--temperature 0.1", "Expected --softmax ITEM with --catalogue and --temperature."),
        (
            "--model two_tower --query user --softmax tags --loss mse",
            "Expected no --loss with --softmax, which has its own. Received: --loss mse.",
        ),
        ("--model own.py --hidden 8 --dropout 0.1", "Expected --hidden, --dropout with a --model"),
        (
            "--model own.py:SIZE",
            "own.py:SIZE to be a function that takes the workflow and returns a",
        ),
        ("--hidden 8,x", "Expected widths of layers, such as --hidden 256,128."),
        ("--hidden=", "Expected widths of layers, such as --hidden 256,128. Received: ''."),
        ("--hidden 8²", "Expected widths of layers, such as --hidden 256,128."),
        ("--optimizer lion", "Expected an optimizer among adam, adagrad, sgd."),
        ("--learning-rate 0", "Expected a learning rate above 0."),
        ("--precision float8", "Expected a precision among float32, bfloat16, float16."),
        ("--loss hinge_los", "Did you mean 'hinge'"),
        ("--metric acu", "Did you mean 'a"),
        ("--metric auc --metric a=auc", "Expected --metric NAME, or --metric OUTPUT=NAME of each"),
        ("--loss mse --loss mae", "Expected one --loss, or one of each output."),
        ("--loss age=mse", "Expected loss for the one output. Received: age."),
        ("--loss-weight 2", "Expected --loss-weight as OUTPUT=WEIGHT, such as click=2."),
        ("--loss-weight a=2 --loss-weight a=3", "--loss-weight once for a. Received: twice."),
        ("--loss-weight click=much", "Expected --loss-weight as OUTPUT=WEIGHT, such as click=2."),
        ("--label nope", "Expected the column 'nope'"),
        ("--sample-weight nope", "Expected the column 'nope'"),
        ("--sample-weight tags", "Expected sample_weight='tags' as one number a row."),
        ("--sample-weight clicked", "workflow tags no other column as target."),
        ("--sample-weight clicked --label clicked", "and sample_weight. Received twice: clicked."),
    ],
)
def test_a_mistake_is_told_before_work_begins(folder, options, text):
    result = run(f"train --checkpoint run --tensorboard logs {options}")
    assert result.exit_code == 1
    assert text in result.stderr
    assert result.stdout == ""
    assert not (folder / "run").exists()
    assert not (folder / "model.keras").exists()


def test_rows_count_by_a_column_of_weights(folder):
    weight = ["number"] >> ops.Clip(max_value=3) >> ops.AddTags(["continuous"])
    label = ["clicked"] >> ops.AddTags(["target"])
    workflow = Workflow(
        (["user"] >> ops.Categorify()) + (["age"] >> ops.Normalize()) + weight + label
    )
    rows = (
        pl.read_parquet("rows.parquet").with_row_index("number").with_columns(pl.col("number") % 5)
    )
    workflow.fit_transform_to_parquet(rows, folder / "weighted")
    workflow.save(folder / "counted")
    given = "weighted --workflow counted --validation weighted --batch-size 500 --seed 2 --json"
    told = json.loads(done(f"{given} --sample-weight number --weighted-metric mae {CHEAP}"))
    model, made = trained("model.keras"), pl.read_parquet("weighted/*.parquet")
    assert set(model.input) == {"user", "age"}
    x = {name: made[name].to_numpy()[:, None] for name in model.input}
    score = model.predict(x, verbose=0)[:, 0].astype("float64")
    weights = np.minimum(made["number"].to_numpy(), 3)
    assert set(weights) == {0, 1, 2, 3}
    losses = -np.log(np.where(made["clicked"] > 0, score, 1 - score))
    assert told["history"]["val_loss"] == pytest.approx([(losses * weights).mean()], rel=1e-4)
    error = np.average(np.abs(made["clicked"] - score), weights=weights)
    assert told["history"]["val_mae"] == pytest.approx([error], rel=1e-4)


def test_a_label_is_needed(folder):
    Workflow(["user"] >> ops.Categorify()).fit(folder / "rows.parquet").save(folder / "unlabelled")
    result = run("train --workflow unlabelled")
    assert "Expected --label, since unlabelled tags no column as target." in result.stderr


def test_every_option_says_what_it_is_for():
    text = CliRunner().invoke(make_app(), ["train", "--help"]).stdout
    told = {
        option.replace("-", "_") for option in re.findall(r"^ +--([a-z-]+) ", text, re.MULTILINE)
    }
    assert set(train.__annotations__) - {"data", "return"} <= told | {"as_json"}


def test_a_network_that_cannot_be_written_leaves_the_one_before(folder, monkeypatch):
    def fail(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (folder / "model.keras").write_text("the one before")
    monkeypatch.setattr(os, "fsync", fail)
    result = run(f"train --batch-size 1000 --embedding-dim 4 {CHEAP}")
    assert result.exit_code == 1
    text = " ".join(result.stderr.split())
    assert (
        "able to write model.keras. Received: [Errno 28] No space left on device. Check the" in text
    )
    assert (folder / "model.keras").read_text() == "the one before"
    assert list(folder.glob("*.keras*")) == [folder / "model.keras"]


@pytest.mark.parametrize("options", ["other", "train --validation other"])
def test_data_of_another_workflow_is_refused(folder, options):
    """Its ids stand for other values, and neither losses nor parity would show it."""
    rows = pl.read_parquet("rows.parquet").filter(pl.col("user") < 30)
    columns = (["user", "tags"] >> ops.Categorify()) + (["age"] >> ops.Normalize())
    label = ["clicked"] >> ops.AddTags(["target"])
    Workflow(columns + label).fit_transform_to_parquet(rows, folder / "other")
    result = run(f"{options} --batch-size 1000")
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "Expected data that the workflow in workflow has made. Received: other, whose " in said
    assert "column 'user' differs: its cardinality is 33, that of the workflow 53." in said
    assert not (folder / "model.keras").exists()


@pytest.mark.usefixtures("folder")
def test_a_warm_start_by_values():
    assert run(f"train --hidden 4 --output monday.keras {CHEAP}").exit_code == 0
    rows = pl.read_parquet("rows.parquet").filter(pl.col("user") > 9)
    rows = pl.concat([rows, rows.head(500).with_columns(user=pl.lit(17_000, pl.Int64))])
    grown = Workflow.load("workflow").fit(rows)
    grown.save("grown")
    grown.transform_to_parquet(rows, "tuesday")
    options = "--warm-start monday.keras --warm-start-workflow workflow --learning-rate 1e-30"
    found = run(f"tuesday --workflow grown --hidden 4 --output tuesday.keras {CHEAP} {options}")
    assert found.exit_code == 0, found.output
    # Of 50 users and what is no user, 40 are left, and one is new.
    assert "user: 43 of 44 ids begin with their earlier vectors" in found.output
    again = json.loads(run(f"tuesday --workflow grown --hidden 4 --json {CHEAP} {options}").stdout)
    assert again["warm_start"]["columns"]["user"] == [43, 44]
    assert again["warm_start"]["anew"] == {}
    wide = f"--hidden 4 --embedding-dim 3 --output wide.keras {CHEAP} {options}"
    lines = run(f"tuesday --workflow grown {wide}").output.splitlines()
    anew = next(place for place, line in enumerate(lines) if "begins anew: its" in line)
    assert len(lines[anew]) <= 80
    assert lines[anew + 1].startswith("  ")
    tables = []
    for name, workflow in (("monday", Workflow.load("workflow")), ("tuesday", grown)):
        layer = keras.saving.load_model(f"{name}.keras").get_layer(index=-3)
        vectors = layer.embedding_tables["user"].numpy()
        ids = workflow.reverse_mapping("user").filter(kind="value")
        tables.append(dict(zip(ids["value"], vectors[ids["id"]].tolist(), strict=True)))
    assert tables[1].keys() - tables[0].keys() == {17_000}
    assert all(tables[1][user] == tables[0][user] for user in tables[1] if user != 17_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--warm-start model.keras", "Received: --warm-start alone"),
        ("--warm-start-workflow workflow", "Received: --warm-start-workflow alone"),
        ("--warm-start saved_model --warm-start-workflow workflow", "Received: saved_model."),
        ("--warm-start no.keras --warm-start-workflow workflow", "no such file"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_warm_start_that_cannot_be(options, message):
    found = run(f"train {options}")
    assert found.exit_code == 1
    assert message in " ".join(found.stderr.split())


OWN = """import keras

@keras.saving.register_keras_serializable("shop")
class Twice(keras.layers.Layer):
    def call(self, x):
        return x * 2

def make_model(workflow):
    age = keras.Input((1,), name="age")
    return keras.Model({"age": age}, keras.layers.Dense(1, "sigmoid", name="y")(Twice()(age)))

def deep(workflow):
    made = make_model(workflow)
    return keras.Model(made.input, keras.layers.Reshape((1, 1))(made.output))
"""


@pytest.fixture
def own(folder):
    (folder / "twice.py").write_text(OWN)
    label = ["clicked"] >> ops.AddTags(["target"])
    workflow = Workflow((["age"] >> ops.Normalize()) + label)
    workflow.fit_transform_to_parquet("rows.parquet", "ages", save_to="ages_flow")
    return "ages --workflow ages_flow --batch-size 4000 --optimizer sgd"


@pytest.mark.long
def test_layers_of_ones_own_are_exported_from_a_saved_model(own):
    """A command that exports does not run the file that defines them."""
    for output, text in (("model.keras", "with 'Twice'"), ("saved", "")):
        result = run(f"{own} --model twice.py --output {output}")
        assert result.exit_code == 0, result.stderr
        command = [sys.executable, "-c", PROGRAM, "export", "shop", "--no-html"]
        done = subprocess.run(
            [*command, "--model", output, "--workflow", "ages_flow"],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert text in done.stderr
        assert done.returncode == bool(text)


def test_a_network_that_no_saved_model_can_have_is_not_trained(own):
    result = run(f"{own} --model twice.py:deep --output saved")
    assert result.exit_code == 1
    assert "of shape (None, k)" in result.stderr
    assert "samples" not in result.stdout
