"""A step in Python answers from a FAISS index: its lists are those of FAISS itself with the same file."""

import sys

import faiss
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

from exporter import ExportError, NearestItems, ServingOptions, export_ensemble, rollback, verify
from exporter.command_line.app import make_app
from exporter.plan.config_pbtxt import read_config
from serving import ClientError, EnsembleClient, ServerError, TritonServer, check_parity
from training.errors import TrainingError
from training.item_index import ItemIndex
from training.item_vectors import ItemVectors
from triton_models import nearest_items

ITEMS, K = 2000, 5
QUERIES = np.linspace(0, ITEMS - 1, 1000).astype("int64")


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
        "strings": catalogue(
            folder / "strings.parquet", [f"☃ {n}" * (n % 3) + str(n) for n in numbers]
        ),
    }


CASES = {
    "graph": ("integers", "HNSW32", "efSearch=64", {}),
    "lists": ("strings", "IVF16,Flat", "nprobe=8", {"max_batch_size": 16}),
    "bytes": ("strings", "IVF16,SQ8", "nprobe=16", {"runtime": "onnx", "network_instances": 2}),
}


@pytest.fixture(scope="module")
def networks(tower, files):
    return {
        name: NearestItems(tower, files[file], K, index, search)
        for name, (file, index, search, _) in CASES.items()
    }


@pytest.fixture(scope="module")
def reports(workflow, networks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {
        name: export_ensemble(
            networks[name],
            workflow,
            name,
            folder,
            ["bought"],
            serving=ServingOptions(**CASES[name][3]),
        )
        for name in CASES
    }


@pytest.fixture(scope="module")
def server(reports):
    with TritonServer(reports["graph"].repository) as server:
        yield server


def by_faiss(report, vectors, k=K):
    """The lists of the published index, asked by FAISS alone."""
    step = report.plan.steps[-1].name
    index = faiss.read_index(str(report.repository / step / "1" / "items.faiss"))
    scores, places = index.search(vectors, k)
    return places, scores


def by_sorting(file, vectors, k=K):
    """The exact best places, in numpy."""
    items = np.array(pl.read_parquet(file)["vector"].to_list(), "float64")
    return np.argsort(-(vectors.astype("float64") @ items.T), axis=1, kind="stable")[:, :k]


@pytest.mark.xdist_group("item_index")
@pytest.mark.parametrize("name", CASES)
def test_lists_are_those_of_the_index(server, reports, workflow, tower, files, networks, name):
    file = files[CASES[name][0]]
    ids = pl.read_parquet(file)["id"].to_list()
    places, scores = by_faiss(reports[name], vectors_of(workflow, tower, ROWS))
    with EnsembleClient(server.grpc_url, name) as client:
        answer = client.predict(RAW)
        assert answer["item"].to_list() == [[ids[n] for n in row] for row in places]
        np.testing.assert_allclose(answer["score"].to_numpy(), scores, rtol=1e-5)
        one = client.predict({column: RAW[column][:1].to_list() for column in RAW.columns})
        assert one["item"].tolist() == [[ids[n] for n in places[0]]]
        assert client.predict(RAW[:0]).shape == (0, 2)

        report = check_parity(client, workflow, networks[name], ROWS, batch_size=4)
        assert report.passed, str(report)
        exact = by_sorting(file, vectors_of(workflow, tower, ROWS))
        share = np.mean([np.isin(*pair) for pair in zip(exact, places, strict=True)])
        assert report.recall == (pytest.approx(share), len(ROWS))
        assert f"recall of the index: {share:.3f}" in str(report)
        others = NearestItems(tower, shifted(file), K, *CASES[name][1:3])
        assert not check_parity(client, workflow, others, ROWS)
        with pytest.raises(ClientError, match=r"outputs item, score.*one with output 1"):
            check_parity(client, workflow, tower, ROWS)


@pytest.mark.xdist_group("item_index")
def test_the_published_index_proves_parity_by_its_path(server, reports, workflow, tower, files):
    path = reports["graph"].repository / "graph_items" / "1" / "items.faiss"
    read = NearestItems(tower, files["integers"], K, path)
    with EnsembleClient(server.grpc_url, "graph") as client:
        assert check_parity(client, workflow, read, ROWS)
        # Another search of the same items, of which not all lists are equal.
        poor = NearestItems(tower, files["integers"], K, "IVF64,Flat", "nprobe=1")
        assert not check_parity(client, workflow, poor, ROWS)


@pytest.mark.parametrize("name", CASES)
def test_the_report_has_the_recall_against_sorting_all_items(reports, files, name):
    file = files[CASES[name][0]]
    vectors = np.array(pl.read_parquet(file)["vector"].to_list(), "float32")[QUERIES]
    places, _ = by_faiss(reports[name], vectors)
    exact = by_sorting(file, vectors)
    share = np.mean([np.isin(*pair) for pair in zip(exact, places, strict=True)])
    found = reports[name].recall
    assert found["1,000 items as queries"] == pytest.approx(share, abs=1e-3)
    assert len(found) == 2
    index, search = CASES[name][1:3]
    assert f"Index {index}, {search}, searched instead of" in " ".join(str(reports[name]).split())
    assert f"{share:.3f} with 1,000 items as queries" in reports[name].to_html()


def test_the_step_is_a_python_model_of_plain_files(reports):
    folder = reports["lists"].repository
    config = read_config(folder / "lists_items" / "config.pbtxt")
    assert (config.backend, list(config.input[0].dims)) == ("python", [WIDTH])
    assert [(o.name, list(o.dims)) for o in config.output] == [("item", [K]), ("score", [K])]
    assert read_config(folder / "bytes_items" / "config.pbtxt").instance_group[0].count == 2
    for name in CASES:
        verify(folder, name)


def test_poor_recall_is_a_warning_with_a_remedy(workflow, tower, files, tmp_path):
    poor = NearestItems(tower, files["integers"], K, "IVF200,Flat", "nprobe=1")
    with pytest.warns(UserWarning, match='finds few of the 5 nearest items.*search="efSearch=128"'):
        report = export_ensemble(poor, workflow, "shop", tmp_path, ["bought"])
    assert report.recall["1,000 items as queries"] < 0.9


def test_an_index_of_items_in_another_order_is_a_warning_that_says_so(
    workflow, tower, files, tmp_path
):
    vectors = np.array(pl.read_parquet(files["integers"])["vector"].to_list(), "float32")
    backwards = faiss.IndexFlatIP(WIDTH)
    backwards.add(vectors[::-1].copy())
    faiss.write_index(backwards, str(tmp_path / "backwards.faiss"))
    network = NearestItems(tower, files["integers"], K, tmp_path / "backwards.faiss")
    with pytest.warns(UserWarning, match="items have to be in the order of the items' file"):
        export_ensemble(network, workflow, "shop", tmp_path / "models", ["bought"])


@pytest.mark.long
def test_what_an_index_does_not_find_is_filled_up(workflow, tower, files, tmp_path):
    """A list of IVF with fewer than k items: the first other items of the file follow."""
    k = 60
    network = NearestItems(tower, files["integers"], k, "IVF100,Flat", "nprobe=1")
    with pytest.warns(UserWarning, match="finds few"):
        report = export_ensemble(network, workflow, "shop", tmp_path, ["bought"])
    vectors = vectors_of(workflow, tower, ROWS)
    places, scores = by_faiss(report, vectors, k)
    assert (places < 0).any()
    ids = pl.read_parquet(files["integers"])["id"].to_list()
    with TritonServer(tmp_path) as server, EnsembleClient(server.grpc_url, "shop") as client:
        answer = client.predict(RAW)
        assert check_parity(client, workflow, network, ROWS)
    for row in range(len(ROWS)):
        found = [*places[row][places[row] >= 0]]
        others = [n for n in range(ITEMS) if n not in found][: k - len(found)]
        assert answer["item"][row].to_list() == [ids[n] for n in [*found, *others]]
        expected = [*scores[row][: len(found)], *[-np.inf] * len(others)]
        np.testing.assert_allclose(answer["score"][row].to_list(), expected, rtol=1e-5)


def test_an_export_again_changes_nothing_and_another_search_is_a_new_version(
    workflow, tower, files, tmp_path
):
    def export(search, path=tmp_path / "models", index="HNSW16"):
        network = NearestItems(tower, files["integers"], K, index, search)
        return export_ensemble(network, workflow, "shop", path, ["bought"])

    first = export("efSearch=32")
    assert not export("efSearch=32").published
    second = export("efSearch=48")
    assert second.published
    assert {step.name for step in second.plan.steps} == {step.name for step in first.plan.steps}
    assert len([*(tmp_path / "models" / "shop_items").glob("*/items.faiss")]) == 2
    rollback(tmp_path / "models", "shop")
    verify(tmp_path / "models", "shop")
    # From the file: the same index, whose parameters it has.
    file = tmp_path / "models" / "shop_items" / "1" / "items.faiss"
    copied = export(None, tmp_path / "others", file)
    made = copied.repository / "shop_items" / "1" / "items.faiss"
    assert made.read_bytes() == file.read_bytes()


def test_rows_of_a_request_are_not_bound_by_the_number_of_items(
    workflow, tower, files, tmp_path, monkeypatch
):
    """The exact search has a limit, for it computes a score for each row and item."""
    monkeypatch.setattr("exporter.export.MOST_SCORES", 10 * ITEMS)
    limits = {
        index: export_ensemble(
            NearestItems(tower, files["integers"], K, index), workflow, "shop", tmp_path, ["bought"]
        ).plan.pipeline.options.limits["max_rows"]
        for index in (None, "Flat")
    }
    assert limits == {None: 10, "Flat": 2**16}


def test_memory_counts_the_index_once_for_all_instances(workflow, tower, files, tmp_path):
    def export(instances, gigabytes):
        network = NearestItems(tower, files["integers"], K, "HNSW32")
        options = ServingOptions(network_instances=instances, server_memory_gb=gigabytes)
        return export_ensemble(network, workflow, "shop", tmp_path, ["bought"], serving=options)

    report = export(3, None)
    file = tmp_path / "shop_items" / "1" / "items.faiss"
    assert report.memory["shop_items"].mapped == file.stat().st_size
    each = {model.name: report.memory[model.name] for model in report.plan.steps}
    needed = 3 * sum(
        memory.own * (1 if name == "shop_nvt" else 3) + memory.mapped
        for name, memory in each.items()
    )
    # The estimate before there are files leaves out their headers and the texts of programs.
    with pytest.raises(ExportError, match="Expected models for server_memory_gb"):
        export(3, needed * 0.98 / 1e9)
    export(3, needed * 1.01 / 1e9)


@pytest.mark.long
def test_a_damaged_index_is_not_served(workflow, tower, files, tmp_path):
    network = NearestItems(tower, files["integers"], K, "Flat")
    export_ensemble(network, workflow, "shop", tmp_path, ["bought"])
    file = tmp_path / "shop_items" / "1" / "items.faiss"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    with pytest.raises(ExportError, match=r"items\.faiss"):
        verify(tmp_path, "shop")
    with pytest.raises(ServerError, match="not what the export wrote"), TritonServer(tmp_path):
        pass


def test_a_server_without_faiss_says_what_it_needs(workflow, tower, files, tmp_path):
    network = NearestItems(tower, files["integers"], K, "Flat")
    export_ensemble(network, workflow, "shop", tmp_path, ["bought"])
    # Found before the package, as if there were none.
    missing = tmp_path / "shop_items" / "1" / "faiss.py"
    missing.write_text("raise ModuleNotFoundError(name='faiss')")
    with pytest.raises(ServerError, match="pip install faiss-cpu"), TritonServer(tmp_path):
        pass


def test_what_is_wrong_is_refused_before_an_index_is_built(workflow, tower, files, tmp_path):
    """The factory string is wrong as well, which the build would find."""
    network = NearestItems(tower, files["integers"], ITEMS + 1, "NoSuchIndex")
    with pytest.raises(ExportError, match="k from 1 to 2,000"):
        export_ensemble(network, workflow, "shop", tmp_path, ["bought"])
    fused = NearestItems(tower, files["integers"], K, "NoSuchIndex")
    options = ServingOptions(runtime="fused_onnx")
    with pytest.raises(ExportError, match="is one model"):
        export_ensemble(fused, workflow, "shop", tmp_path, ["bought"], serving=options)


def test_the_server_proves_it_before_it_is_published(workflow, tower, files, tmp_path):
    network = NearestItems(tower, files["strings"], K, "HNSW16")
    options = ServingOptions(prove="server")
    report = export_ensemble(network, workflow, "shop", tmp_path, ["bought"], serving=options)
    assert report.proof.in_server


@pytest.mark.long
@pytest.mark.xdist_group("item_index")
def test_the_commands_export_and_prove_it(server, workflow, tower, files, tmp_path):
    tower.save(tmp_path / "tower.keras")
    workflow.save(tmp_path / "workflow")
    ROWS.write_parquet(tmp_path / "rows.parquet")
    given = ["--workflow", tmp_path / "workflow", "--model", tmp_path / "tower.keras"]
    given += ["--items", files["integers"], "--k", K]
    index = ["--index", "HNSW32", "--search", "efSearch=64"]
    places = ["--label", "bought", "--repository", tmp_path / "m"]
    made = ensemble("export", "shop", *places, *given, *index)
    assert "Index HNSW32, efSearch=64, searched" in " ".join(made.split())
    rows = tmp_path / "rows.parquet"
    shown = ensemble("parity", "graph", rows, "--url", server.grpc_url, *given, *index)
    assert "Parity passed: graph, 6 rows" in shown
    published = tmp_path / "m" / "shop_items" / "1" / "items.faiss"
    shown = ensemble(
        "parity", "graph", rows, "--url", server.grpc_url, *given, "--index", published
    )
    assert "recall of the index" in shown
    arguments = ["export", "shop", *given[:4], "--index", "Flat"]
    alone = CliRunner().invoke(make_app(), [*map(str, arguments)])
    assert alone.exit_code == 1
    assert "--index with --items FILE" in " ".join(alone.output.split())


def ensemble(*arguments):
    result = CliRunner().invoke(make_app(), [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("index", "search", "message"),
    [
        (
            "NoSuchIndex",
            None,
            "FAISS can build.*FAISS says: could not parse index string NoSuchIndex",
        ),
        ("IVF4096,Flat", None, "fewer lists"),
        ("IVF16,PQ4x12", None, "2,000 items.*FAISS says.*training points"),
        ("HNSW32", "efSearch", "Expected parameters among.*HNSW32, efSearch; "),
        ("HNSW32", "nprobe=4", "Expected parameters among.*could not set parameter nprobe"),
        ("IVF16,Flat", "nprobe=0", "Expected parameters among.*nprobe=0; "),
        ("IVF16,Flat", "nprobe=4,max_codes=9", "'max_codes' is not kept"),
        ("IDMap,Flat", None, "add does not make sense"),
        ("LSH", None, "METRIC_L2"),
        ("nothing.faiss", None, "no such file"),
        ("damaged.faiss", None, r"Expected an index of FAISS in .*damaged\.faiss"),
        ("others.faiss", None, r"index of the 2,000 items of width 8\. Received.* 3 of width 8"),
        ("distances.faiss", None, "by inner product"),
        ("named.faiss", None, r"from 0 to 1999\. Received.*ids such as \d+\. Build it without ids"),
    ],
)
def test_what_is_no_index_of_the_items(files, tmp_path, index, search, message):
    vectors = np.array(pl.read_parquet(files["integers"])["vector"].to_list(), "float32")
    for name, made, count in (
        ("others", faiss.IndexFlatIP(WIDTH), 3),
        ("distances", faiss.IndexFlatL2(WIDTH), ITEMS),
    ):
        made.add(vectors[:count])
        faiss.write_index(made, str(tmp_path / f"{name}.faiss"))
    named = faiss.index_factory(WIDTH, "IDMap,Flat", faiss.METRIC_INNER_PRODUCT)
    named.add_with_ids(vectors, np.arange(ITEMS) * 7)
    faiss.write_index(named, str(tmp_path / "named.faiss"))
    (tmp_path / "damaged.faiss").write_bytes((tmp_path / "others.faiss").read_bytes()[:-2])
    if index.endswith(".faiss"):
        index = tmp_path / index
    with pytest.raises(TrainingError, match=message):
        ItemIndex.of(ItemVectors.read(files["integers"]), index, search)


def test_an_export_with_an_index_that_cannot_be_made_leaves_nothing(
    workflow, tower, files, tmp_path
):
    network = NearestItems(tower, files["integers"], K, "NoSuchIndex")
    with pytest.raises(ExportError, match="could not parse index string NoSuchIndex"):
        export_ensemble(network, workflow, "shop", tmp_path / "models", ["bought"])
    assert not (tmp_path / "models" / "shop").exists()


@pytest.mark.parametrize("runtime", ["fused_onnx", "fused_tensorflow"])
def test_a_fused_runtime_has_no_place_for_an_index(workflow, tower, files, tmp_path, runtime):
    network = NearestItems(tower, files["integers"], K, "Flat")
    with pytest.raises(
        ExportError, match=r"among tensorflow, onnx, which serve a search in an index.*one model"
    ):
        export_ensemble(
            network, workflow, "shop", tmp_path, serving=ServingOptions(runtime=runtime)
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"index": 7}, "factory string.*Received: 7"),
        ({"index": ""}, "factory string"),
        ({"search": "nprobe=4"}, "beside an index"),
        ({"index": "Flat", "search": 4}, "as text"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(TrainingError, match=message):
        NearestItems("tower.keras", "items.parquet", 5, **arguments)


def test_the_extra_is_named_where_it_is_missing(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.delitem(sys.modules, "triton_models.nearest_items.search", raising=False)
    monkeypatch.delattr(nearest_items, "search", raising=False)
    with pytest.raises(
        TrainingError, match=r'the package faiss: pip install "parquet-to-triton\[faiss\]'
    ):
        ItemIndex.of(ItemVectors.read(files["integers"]), "Flat")


def test_a_list_of_a_nearby_vector_is_equal_and_another_is_not(tower, files):
    """Parity of rows that stand where a search turns: the served vector differs in its last digits."""
    network = NearestItems(tower, files["integers"], K, "IVF16,Flat", "nprobe=1")
    inputs = {"user": np.array([[3]]), "price": np.array([[0.5]], "float32")}
    expected = network.predict_on_batch(inputs)
    finder = ItemIndex.of(ItemVectors.read(files["integers"]), network.index, network.search)
    index = finder.index
    centroids = index.quantizer.reconstruct_n(0, 16)
    # Halfway between the two best lists, where a digit decides which of them is searched.
    one, two = centroids[0], centroids[np.argsort(-(centroids @ centroids[0]))[1]]
    normal = (one - two) / np.linalg.norm(one - two)
    middle = (one + two) / np.linalg.norm(one + two)
    middle = (middle - normal * (middle @ normal)).astype("float32")
    sides = [middle + side * 1e-6 * normal for side in (-1, 1)]
    (here, here_scores), (there, there_scores) = (
        finder.nearest(side[None].astype("float32"), K) for side in sides
    )
    assert set(here[0]) != set(there[0])
    (vector,) = expected.keys() - {"item", "score"}
    expected = {"item": here, "score": here_scores, vector: sides[0][None].astype("float32")}
    made = network.as_served(expected, {"item": there, "score": there_scores}, 1e-5)
    assert made["item"].tolist() == there.tolist()
    np.testing.assert_allclose(made["score"], there_scores, rtol=1e-4)
    # The list of a vector farther away is another list.
    far = finder.nearest((sides[1] + 0.05 * normal)[None].astype("float32"), K)[0]
    wrong = np.where(np.arange(K) == K - 1, far[:, :1] + 1, there)
    for served in (here[:, ::-1], wrong, np.repeat(here[:, :1], K, axis=1)):
        made = network.as_served(expected, {"item": served, "score": here_scores}, 1e-5)
        assert made["item"].tolist() == here.tolist()
