"""The file of items and vectors: written from raw items, and refused if it is not one."""

import keras
import numpy as np
import polars as pl
import pytest

from training import TrainingError, models
from training.retrieval import ItemVectors, tower, write_item_vectors
from workflow import Workflow, ops

MOVIES = pl.DataFrame(
    {
        "movieId": [70, 10, 90, 30, 20],
        "title": ["seventy", "ten", "ninety", "thirty", "twenty"],
        "genres": [["a", "b"], [], None, ["c"], ["b"]],
        "unused": [1, 2, 3, 4, 5],
    }
)


@pytest.fixture(scope="module")
def trained():
    ids = ["userId", "movieId", "genres"] >> ops.Categorify()
    label = ["rating"] >> ops.AddTags(["target"])
    rows = {
        "userId": [1, 2, 3, 1],
        "movieId": [70, 10, 30, 20],
        "genres": [["a", "b"], [], ["c"], ["b"]],
        "rating": [1, 0, 1, 1],
    }
    workflow = Workflow(ids + label).fit(rows)
    keras.utils.set_random_seed(0)
    model = models.two_tower(
        workflow.output_schema,
        query=["userId"],
        candidate=["movieId", "genres"],
        width=4,
        hidden=(8,),
    )
    return model, workflow


@pytest.mark.parametrize("id_", ["movieId", "title"])
def test_vectors_are_those_of_the_tower_in_the_items_order(trained, tmp_path, id_, stages):
    model, workflow = trained
    file = tmp_path / "items.parquet"
    assert write_item_vectors(model, workflow, MOVIES, file, id=id_, batch_rows=2) == 5
    assert [(s.title, s.total, s.done) for s in stages] == [("item vectors", 5, 5)]
    assert [path.name for path in tmp_path.iterdir()] == ["items.parquet"]
    # The ids worked out on paper: the vocabularies are by frequency, then by value, from 3 on.
    table = pl.read_parquet(file)
    assert table["id"].to_list() == MOVIES[id_].to_list()
    movie = {10: 3, 20: 4, 30: 5, 70: 6}
    genre = {"b": 3, "a": 4, "c": 5}
    candidate = tower(model, "candidate")
    for row, vector in zip(MOVIES.iter_rows(named=True), table["vector"], strict=True):
        values = [genre[g] for g in row["genres"] or []]
        inputs = {
            "movieId": np.array([[movie.get(row["movieId"], 2)]]),
            "genres": (np.array(values, "int64").reshape(-1, 1), np.array([[len(values)]])),
        }
        np.testing.assert_allclose(vector, candidate(inputs)[0], rtol=1e-5, atol=1e-6)
    read = ItemVectors.read(file)
    assert read.ids.tolist() == MOVIES[id_].to_list()
    np.testing.assert_array_equal(read.vectors, table["vector"].to_numpy())


def test_a_workflow_without_the_towers_columns_is_told(trained, tmp_path):
    model, workflow = trained
    smaller = workflow.remove_inputs(["genres"])
    with pytest.raises(TrainingError, match=r"does not make genres, which the candidate's tower"):
        write_item_vectors(model, smaller, MOVIES, tmp_path / "items.parquet", id="movieId")


def test_a_file_stays_if_a_later_one_cannot_be_written(trained, tmp_path):
    model, workflow = trained
    file = tmp_path / "items.parquet"
    write_item_vectors(model, workflow, MOVIES, file, id="movieId")
    before = file.read_bytes()
    broken = MOVIES.with_columns(genres=pl.Series([[1.5]] * 5))
    with pytest.raises(TrainingError, match="genres"):
        write_item_vectors(model, workflow, broken, file, id="movieId")
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["items.parquet"]


@pytest.mark.parametrize("size", [1, 5_000])
def test_a_full_disk_leaves_the_file_as_it_was(trained, tmp_path, full_disk, size):
    file = tmp_path / "items.parquet"
    write_item_vectors(*trained, MOVIES, file, id="movieId")
    before = file.read_bytes()
    many = pl.DataFrame({"movieId": range(9_000), "genres": [["a"]] * 9_000})
    message = rf"able to write {file}\. Received: .*File too large.*Check the free space"
    with full_disk(size), pytest.raises(TrainingError, match=message):
        write_item_vectors(*trained, many, file, id="movieId", batch_rows=1_000)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_is_missing_is_told(trained, tmp_path):
    file = tmp_path / "missing" / "items.parquet"
    with pytest.raises(TrainingError, match=r"existing folder to write items\.parquet.*missing"):
        write_item_vectors(*trained, MOVIES, file, id="movieId")


@pytest.mark.parametrize(
    ("items", "id_", "message"),
    [
        (MOVIES, "movie", "columns movie, movieId, genres in items.*missing: movie"),
        (MOVIES.drop("genres"), "movieId", "missing: genres"),
        (pl.concat([MOVIES, MOVIES]), "movieId", r"10 rows, with 5 values.*\[70, 10, 90\].*unique"),
        (MOVIES.with_columns(title=None), "title", r"5 rows, with 1 values.*\[None\]"),
        (MOVIES[:0], "movieId", "at least one item"),
        (
            MOVIES.with_columns(price=pl.col("unused") / 2),
            "price",
            "numbers or strings. Received: Float64",
        ),
        (
            MOVIES.with_columns(key=pl.Series([1, 2, 3, 4, 2**63], dtype=pl.UInt64)),
            "key",
            r"'key' within int64. Received: 9223372036854775808. Make strings of them",
        ),
        ("no-such.parquet", "movieId", "no-such.parquet"),
    ],
)
def test_items_that_cannot_be_written(trained, tmp_path, items, id_, message):
    with pytest.raises(TrainingError, match=message):
        write_item_vectors(*trained, items, tmp_path / "items.parquet", id=id_)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("by_link", [False, True])
@pytest.mark.parametrize("name", ["items.parquet", "items.csv"])
def test_vectors_never_replace_the_items(trained, tmp_path, name, by_link):
    file = path = tmp_path / name
    movies = MOVIES.with_columns(genres=pl.lit("a")) if name.endswith(".csv") else MOVIES
    (movies.write_csv if name.endswith(".csv") else movies.write_parquet)(file)
    before = file.read_bytes()
    if by_link:
        path = tmp_path / "link"
        path.symlink_to(file)
    with pytest.raises(TrainingError, match=rf"{path}, which the results would replace"):
        write_item_vectors(*trained, file, path, id="movieId")
    assert file.read_bytes() == before


def test_a_workflow_that_drops_items_is_told(tmp_path):
    sizes = {"userId": (9, 4), "movieId": (9, 4)}, {"genres": (9, 4)}
    model = models.two_tower(sizes, query=["userId"], candidate=["movieId", "genres"])
    kept = ["userId", "movieId", "genres"] >> ops.Filter(lambda c: c["movieId"] > 10)
    workflow = Workflow(kept >> ops.Categorify()).fit(
        {"userId": [1, 2], "movieId": [70, 20], "genres": [["a"], []]}
    )
    with pytest.raises(TrainingError, match=r"Filter over .* needs more than one row"):
        write_item_vectors(model, workflow, MOVIES, tmp_path / "items.parquet", id="movieId")


@pytest.mark.parametrize("batch_rows", [0, -1, 2.5])
def test_a_batch_without_rows_is_refused(trained, tmp_path, batch_rows):
    file = tmp_path / "items.parquet"
    with pytest.raises(TrainingError, match=f"batch_rows as a whole number.*{batch_rows}"):
        write_item_vectors(*trained, MOVIES, file, id="movieId", batch_rows=batch_rows)


def test_an_item_without_a_number_has_no_vector_of_zero(tmp_path):
    """Refuse a null of an item that no training row has, as a price that a join does not find."""
    prices = pl.DataFrame({"movieId": [70, 20], "price": [1.5, 4.0]})
    joined = ["movieId"] >> ops.JoinExternal(prices, on="movieId")
    ids = ["userId", "movieId"] >> ops.Categorify()
    workflow = Workflow(ids + (joined["price"] >> ops.Normalize())).fit(
        {"userId": [1, 2], "movieId": [70, 20]}
    )
    model = models.two_tower(
        workflow.output_schema, query=["userId"], candidate=["movieId", "price"], hidden=()
    )
    file = tmp_path / "items.parquet"
    known = MOVIES.filter(pl.col("movieId").is_in([70, 20]))
    assert write_item_vectors(model, workflow, known, file, id="movieId") == 2
    before = file.read_bytes()
    message = r"no null in 'price' of items\. Received: 3 nulls.*FillMissing"
    with pytest.raises(TrainingError, match=message):
        write_item_vectors(model, workflow, MOVIES, file, id="movieId")
    assert file.read_bytes() == before


GOOD = {"id": [1, 2], "vector": [[1.0, 2.0], [3.0, 4.0]]}


def test_an_item_whose_vector_is_not_finite_is_named(tmp_path):
    """Written, it would be refused by whoever reads the file, without its cause."""
    rows = {"userId": [1, 2, 3], "movieId": [7, 8, 9], "price": [1.0, 2.0, 4.0]}
    ids = ["userId", "movieId"] >> ops.Categorify()
    workflow = Workflow(ids + (["price"] >> ops.Normalize())).fit(rows)
    sides = {"query": ["userId"], "candidate": ["movieId", "price"]}
    model = models.two_tower(workflow.output_schema, **sides, width=4, hidden=(8,))
    items = pl.DataFrame({"movieId": [7, 8, 9], "price": [1.0, float("inf"), 2.0]})
    with pytest.raises(TrainingError, match=r"finite numbers.*Received: NaN.*'movieId' 8.*Clip"):
        write_item_vectors(model, workflow, items, tmp_path / "items.parquet", id="movieId")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": [1, 1]}, r"each item once.*2 rows with 1 items, 0 null; repeated: \[1\]"),
        ({"id": [1, None]}, "each item once.*1 null"),
        ({"id": [1.0, 2.0]}, "whole numbers or strings. Received: Float64"),
        ({"id": pl.Series([1, 2**64 - 1], dtype=pl.UInt64)}, "ids up to 9223372036854775807"),
        ({"vector": [1.0, 2.0]}, "lists of float32. Received: Float64"),
        ({"vector": [[1, 2], [3, 4]]}, "lists of float32. Received: List.Int64"),
        ({"vector": [[1.0, 2.0], [3.0]]}, "one width.*from 1 to 2"),
        ({"vector": [[1.0, 2.0], None]}, "one width.*from 0 to 2"),
        ({"vector": [[], []]}, "one width|lists of float32"),
        ({"vector": [[1.0, 2.0], [3.0, float("nan")]]}, "null, NaN or infinity in 1 rows.*is 1,"),
        ({"vector": [[1.0, 1e39], [3.0, 4.0]]}, "null, NaN or infinity in 1 rows.*is 0,"),
        ({"vector": [[1.0, None], [3.0, 4.0]]}, "null, NaN or infinity in 1 rows.*is 0,"),
    ],
)
def test_files_that_hold_no_vectors_of_items(tmp_path, change, message):
    pl.DataFrame({**GOOD, **change}).write_parquet(tmp_path / "items.parquet")
    with pytest.raises(TrainingError, match=message):
        ItemVectors.read(tmp_path / "items.parquet")


def test_other_files_and_sizes_are_named(tmp_path):
    file = tmp_path / "items.parquet"
    with pytest.raises(TrainingError, match=r"path of a parquet file.* DataFrame"):
        ItemVectors.read(MOVIES)
    with pytest.raises(TrainingError, match=r"path of this machine\. Received: 's3://shop/items'"):
        ItemVectors.read("s3://shop/items")
    with pytest.raises(TrainingError, match=r"items\.parquet"):
        ItemVectors.read(file)
    pl.DataFrame({"item": [1], "vector": [[1.0]]}).write_parquet(file)
    with pytest.raises(TrainingError, match=r"columns id and vector.*Received: item, vector"):
        ItemVectors.read(file)
    pl.DataFrame(GOOD)[:0].write_parquet(file)
    with pytest.raises(TrainingError, match="at least one item"):
        ItemVectors.read(file)
    pl.DataFrame(GOOD).write_parquet(file)
    items = ItemVectors.read(file)
    with pytest.raises(TrainingError, match=r"k from 1 to 2.*Received: 3"):
        items.nearest(np.ones((1, 2), "float32"), 3)
    with pytest.raises(TrainingError, match=r"wide as the items' vectors, 2.*Received: 5"):
        items.nearest(np.ones((1, 5), "float32"), 1)


def test_a_query_that_is_not_finite_is_no_warning(tmp_path):
    """As the tower's vector of the largest numbers, which an export tries."""
    file = tmp_path / "items.parquet"
    pl.DataFrame(GOOD).write_parquet(file)
    queries = np.array([[np.inf, -np.inf], [np.nan, 1.0], [3e38, 3e38]], "float32")
    ids, _ = ItemVectors.read(file).nearest(queries, 2)
    assert ids.shape == (3, 2)
