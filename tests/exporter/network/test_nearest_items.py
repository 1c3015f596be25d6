"""One ensemble answers with the best items: the lists are those of sorting all items in numpy."""

import itertools

import keras
import numpy as np
import polars as pl
import pytest
from small_catalogue import (
    RAW,
    ROWS,
    WIDTH,
    catalogue,
    make_tower,
    make_workflow,
    shifted,
    vectors_of,
)
from typer.testing import CliRunner

from exporter import (
    ExportError,
    NearestItems,
    ServingOptions,
    export_ensemble,
    export_tensorflow_ensemble,
    verify,
)
from exporter.command_line.app import make_app
from exporter.plan.config_pbtxt import read_config
from serving import ClientError, EnsembleClient, TritonServer, check_parity
from training import models, retrieval
from training.models.two_tower import UnitVector

ITEMS, K = 300, 5


@pytest.fixture(scope="module")
def workflow():
    return make_workflow()


@pytest.fixture(scope="module")
def tower():
    return make_tower()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("items")
    numbers = np.random.default_rng(2).permutation(ITEMS) * 10**12 - 7
    return {
        "integers": catalogue(folder / "integers.parquet", numbers.tolist()),
        "strings": catalogue(folder / "strings.parquet", [f"☃ {n}" for n in numbers]),
    }


def test_the_items_own_tower_is_refused(workflow, files, tmp_path):
    inputs = {"user": keras.Input((1,), name="user", dtype="int64")}
    user = keras.layers.Flatten()(keras.layers.Embedding(10, WIDTH)(inputs["user"]))
    items = keras.Model(inputs, UnitVector(name="candidate_vector")(user))
    with pytest.raises(ExportError, match="Expected the query's tower"):
        export_ensemble(
            NearestItems(items, files["integers"], K), workflow, "shop", tmp_path, ["bought"]
        )


@pytest.mark.parametrize("kept", ["in memory", "in a file"])
def test_both_towers_with_their_softmax_are_refused(kept, workflow, files, tmp_path):
    """Its answer to a row alone is a probability of 1, whatever the row."""
    sizes = {"user": (10, WIDTH)}, {"tags": (10, WIDTH)}
    both = models.two_tower(
        sizes,
        query=["tags"],
        candidate=["user"],
        hidden=(),
        softmax=retrieval.InBatchSoftmax("user"),
    )
    if kept == "in a file":
        both.save(tmp_path / "both.keras")
    for network in (both, NearestItems(both, files["integers"], K)):
        given = tmp_path / "both.keras" if kept == "in a file" and network is both else network
        with pytest.raises(ExportError, match=r"two towers with a softmax.*tower\(model, \"query"):
            export_ensemble(given, workflow, "shop", tmp_path / "models")
    assert not (tmp_path / "models").exists()


def best(workflow, tower, file, k):
    """Ids and scores of the best items, by Python's sort."""
    vectors = vectors_of(workflow, tower, ROWS).astype("float64")
    table = pl.read_parquet(file)
    items = np.array(table["vector"].to_list(), "float64")
    ids = table["id"].to_list()
    scores = vectors @ items.T
    order = [sorted(range(len(ids)), key=lambda n, row=row: -row[n])[:k] for row in scores]
    return [[ids[n] for n in places] for places in order], np.take_along_axis(
        scores, np.array(order), 1
    )


CASES = {
    "plain": ("integers", {}),
    "joined": ("integers", {"max_batch_size": 16}),
    "onnx": ("strings", {"runtime": "onnx"}),
    "onnx_joined": ("integers", {"runtime": "onnx", "max_batch_size": 16}),
    "fused": ("strings", {"runtime": "fused_onnx"}),
}


@pytest.fixture(scope="module")
def repository(workflow, tower, files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, (file, options) in CASES.items():
        export_ensemble(
            NearestItems(tower, files[file], K),
            workflow,
            name,
            folder,
            ["bought"],
            serving=ServingOptions(**options),
        )
    return folder


@pytest.fixture(scope="module")
def server(repository):
    with TritonServer(repository) as server:
        yield server


@pytest.mark.xdist_group("nearest_items")
@pytest.mark.parametrize("name", CASES)
def test_users_features_are_answered_with_the_best_items(server, workflow, tower, files, name):
    file = files[CASES[name][0]]
    ids, scores = best(workflow, tower, file, K)
    with EnsembleClient(server.grpc_url, name) as client:
        answer = client.predict(RAW)
        assert answer["item"].to_list() == ids
        np.testing.assert_allclose(answer["score"].to_numpy(), scores, rtol=1e-5)
        one = client.predict({column: RAW[column][:1].to_list() for column in RAW.columns})
        assert one["item"].tolist() == ids[:1]
        report = check_parity(client, workflow, NearestItems(tower, file, K), ROWS, batch_size=4)
        assert report.passed, str(report)
        others = NearestItems(tower, shifted(file), K)
        assert not check_parity(client, workflow, others, ROWS)
        with pytest.raises(ClientError, match=r"item of the shape \(6, 6\). Received: \(6, 5\)"):
            check_parity(client, workflow, NearestItems(tower, file, K + 1), ROWS)
        with pytest.raises(
            ClientError, match=r"exported, with the outputs item, score.*one with output 1"
        ):
            check_parity(client, workflow, tower, ROWS)
        with pytest.raises(ClientError, match="Expected the items as parquet"):
            check_parity(client, workflow, NearestItems(tower, "nothing.parquet", K), ROWS)


@pytest.mark.xdist_group("nearest_items")
def test_the_commands_export_and_prove_it(server, workflow, tower, files, tmp_path):
    tower.save(tmp_path / "tower.keras")
    workflow.save(tmp_path / "workflow")
    ROWS.write_parquet(tmp_path / "rows.parquet")
    given = ["--workflow", tmp_path / "workflow", "--model", tmp_path / "tower.keras"]
    given += ["--items", files["integers"], "--k", K]
    place = ["--repository", tmp_path / "m", "--prove", "process"]
    made = ensemble("export", "shop", "--label", "bought", *place, *given)
    assert "gives item int64[N, 5]" in made
    rows = tmp_path / "rows.parquet"
    shown = ensemble("parity", "joined", rows, "--url", server.grpc_url, *given)
    assert "Parity passed: joined, 6 rows" in shown


def ensemble(*arguments):
    result = CliRunner().invoke(make_app(), [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.xdist_group("nearest_items")
def test_a_step_of_its_own_stands_behind_the_tower(repository):
    made = {path.parent.name: read_config(path) for path in repository.glob("*/config.pbtxt")}
    assert [step.model_name for step in made["plain"].ensemble_scheduling.step] == [
        "plain_nvt",
        "plain_tf",
        "plain_items",
    ]
    assert made["plain_items"].backend == "onnxruntime"
    assert [(o.name, list(o.dims)) for o in made["joined"].output] == [
        ("item", [K]),
        ("score", [K]),
    ]
    assert not made["fused"].ensemble_scheduling.step
    verify(repository, "plain")


def test_equal_scores_are_no_difference_and_other_items_are(tower, tmp_path):
    """Items in groups of four with the same vector, so that k cuts through a group."""
    vectors = np.repeat(np.random.default_rng(3).normal(size=(6, WIDTH)), 4, axis=0)
    file = catalogue(tmp_path / "items.parquet", [f"i{n}" for n in range(24)], vectors)
    network = NearestItems(tower, file, 6)
    inputs = {"user": np.array([[3]]), "price": np.array([[0.5]], "float32")}
    expected = network.predict_on_batch(inputs)
    (items,) = expected["item"].tolist()
    first, second = ({int(item[1:]) // 4 for item in part} for part in (items[:4], items[4:]))
    assert len(first) == len(second) == 1

    def settled(*places):
        served = np.array([[f"i{n}" for n in places]], object)
        made = network.as_served(expected, {"item": served, "score": expected["score"]}, 1e-5)
        return [item.decode() for item in made["item"][0]] == served[0].tolist()

    group, other = first.pop() * 4, second.pop() * 4
    assert settled(group + 3, group, group + 2, group + 1, other + 2, other + 3)
    assert not settled(group, group, group + 1, group + 2, other, other + 1)  # one twice
    assert not settled(other, group, group + 1, group + 2, group + 3, other + 1)  # another order
    worst = ({0, 4, 8, 12, 16, 20} - {group, other}).pop()
    assert not settled(group, group + 1, group + 2, group + 3, other, worst)
    assert not settled(group, group + 1, group + 2, group + 3, other, 99)  # unknown


def test_items_of_equal_scores_are_published(workflow, tower, tmp_path):
    """Scores that differ in their last digits too: which is greater depends on the order of a sum."""
    random = np.random.default_rng(3)
    vectors = np.repeat(random.normal(size=(6, WIDTH)), 40, axis=0)
    vectors[::2] *= 1 + random.normal(size=(120, WIDTH)) * 1e-7
    file = catalogue(tmp_path / "items.parquet", list(range(240)), vectors)
    for runtime, k in itertools.product(["onnx", "fused_onnx"], [60, 240]):
        report = export_ensemble(
            NearestItems(tower, file, k),
            workflow,
            f"{runtime}_{k}",
            tmp_path / "models",
            ["bought"],
            serving=ServingOptions(runtime=runtime),
        )
        for golden in report.proof.golden:
            # Of 40 equal items each comes once, whichever is first.
            items, scores = golden.answer["item"], golden.answer["score"]
            assert [len({*row}) for row in items.tolist()] == [k] * len(items)
            assert len(np.unique(scores.round(3))) <= 6


def test_new_items_are_a_new_generation_of_one_step(workflow, tower, files, tmp_path):
    """The other steps' files stay the same; a repeated export changes nothing."""
    models = tmp_path / "models"

    def export(file, k=K):
        network = NearestItems(tower, file, k)
        return export_tensorflow_ensemble(network, workflow, "shop", models, ["bought"])

    export(files["integers"])
    assert not export(files["integers"]).published
    again = export(shifted(files["integers"]))
    assert again.published
    assert (models / "shop_items" / "2" / "model.onnx").is_file()
    longer = export(files["integers"], K + 1)  # another contract: a step of another name
    steps = {step.name for step in longer.plan.steps}
    assert "shop_items" not in steps
    verify(models, "shop")


def test_a_request_has_as_many_rows_as_there_is_memory_for(
    workflow, tower, files, tmp_path, monkeypatch
):
    network = NearestItems(tower, files["integers"], K)

    def limits(**options):
        serving = ServingOptions(runtime="fused_onnx", warm_up=False, **options)
        made = export_ensemble(network, workflow, "shop", tmp_path, ["bought"], serving=serving)
        return made.plan.pipeline.options.limits.get("max_rows")

    assert limits() == 2**16
    monkeypatch.setattr("exporter.export.MOST_SCORES", 10 * ITEMS + 7)
    assert limits() == 10
    assert limits(max_rows=500) == 500
    assert limits(max_batch_size=64) is None


def two_outputs():
    given = keras.Input((1,), name="price")
    return keras.Model({"price": given}, {"a": given, "b": given})


def answering_as(name):
    given = keras.Input((1,), name="price")
    return keras.Model({"price": given}, keras.layers.Dense(WIDTH, name=name)(given))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tower": lambda: answering_as("score")}, "another name.*Received: 'score'. Rename"),
        ({"k": ITEMS + 1}, "k from 1 to 300, the number of items. Received: 301"),
        ({"items": "no-such.parquet"}, r"no-such\.parquet"),
        ({"width": WIDTH + 1}, "as wide as the items' vectors, 9. Received: 8"),
        ({"ids": [3] * 4}, r"each item once.*repeated: \[3\]"),
        ({"ids": [1.5, 2.5]}, "whole numbers or strings. Received: Float64"),
        ({"ids": ["a", "b\0"]}, "without NUL"),
        ({"ids": []}, "at least one item"),
        ({"nan": True}, "NaN or infinity in 1 rows"),
        ({"tower": two_outputs}, "one output, the query's vector.*Received: a float32.*b float32"),
        ({"runtime": "fused_tensorflow"}, "tensorflow, onnx, fused_onnx, which serve a search"),
        ({"tower": lambda: 7}, "Expected a Keras model"),
    ],
)
def test_what_cannot_be_searched(workflow, tower, files, tmp_path, change, message):
    file = change.get("items", files["integers"])
    ids = change.get("ids", [1, 2])
    if change.keys() & {"ids", "nan", "width"}:
        vectors = np.ones((len(ids), change.get("width", WIDTH)))
        if "nan" in change:
            vectors[1, 2] = np.nan
        file = catalogue(tmp_path / "items.parquet", ids, vectors)
    network = NearestItems(change.get("tower", lambda: tower)(), file, change.get("k", 1))
    options = ServingOptions(runtime=change.get("runtime", "auto"))
    with pytest.raises(ExportError, match=message):
        export_ensemble(network, workflow, "shop", tmp_path / "models", ["bought"], serving=options)
    assert not (tmp_path / "models" / "shop").exists()
