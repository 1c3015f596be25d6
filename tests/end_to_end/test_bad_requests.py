"""A request that is wrong gets INVALID_ARGUMENT and a fixed text; the server goes on."""

import numpy as np
import polars as pl
import pytest

from serving import ClientError


@pytest.fixture
def good(pipelines):
    """The tensors of a right request."""
    from workflow.expressions.polars.series import to_column
    from workflow.wire.format import encode

    rows = pipelines["movielens"].rows

    def tensors(client):
        made = {}
        for column in client.contract.inputs:
            made |= encode(column, to_column(rows[column.name]))
        return made

    return tensors


def without(tensors, name):
    return {key: value for key, value in tensors.items() if key != name}


BAD = {
    "missing": lambda t: without(t, "userId"),
    "extra": lambda t: t | {"surplus": t["userId"]},
    "mistyped": lambda t: t | {"userId": t["userId"].astype(np.int32)},
    "of one dimension": lambda t: t | {"userId": t["userId"].reshape(-1)},
    "of two columns": lambda t: t | {"userId": np.repeat(t["userId"], 2, axis=1)},
    "of other rows": lambda t: t | {"userId": t["userId"][:2]},
    "negative length": lambda t: t | {"tags__nnzs": t["tags__nnzs"] * np.array([[-1], *[[1]] * 5])},
    "too many values": lambda t: t | {"tags__values": np.concatenate([t["tags__values"]] * 2)},
    "lengths that wrap": lambda t: (
        t | {"tags__nnzs": np.array([[2**62]] * 4 + [[0], [len(t["tags__values"])]])}
    ),
    "not UTF-8": lambda t: t | {"tags__values": np.full_like(t["tags__values"], b"\xfe\xfe")},
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_request_is_refused_and_the_server_goes_on(kind, good, client):
    connection = client("movielens")
    request = good(connection)
    expected = connection.raw(request)
    with pytest.raises(ClientError) as refusal:
        connection.raw(BAD[kind](request))
    assert refusal.value.code == "INVALID_ARGUMENT"
    text = str(refusal.value)
    for secret in ("/", "Traceback", "numpy", ".py", "12345"):
        assert secret not in text.replace("[-1,1]", "").replace("N/A", "")
    np.testing.assert_array_equal(connection.raw(request)["rating_score"], expected["rating_score"])


def test_the_code_for_null_cannot_be_sent_by_accident(client):
    with pytest.raises(ClientError, match="null code"):
        client("movielens").predict(
            pl.DataFrame({"userId": [-(2**63)], "movieId": [1], "tags": [["fun"]], "price": [1.0]})
        )


def test_null_where_the_workflow_says_nothing_of_it(client):
    rows = {"i32": [1], "i64": [None], "f32": [1.0], "f64": [1.0]}
    with pytest.raises(ClientError, match=r"i64.*null"):
        client("extremes").predict(rows)


def test_nan_where_the_workflow_says_nothing_of_it(client):
    one = {
        name: np.ones((1, 1), dtype)
        for name, dtype in (("i32", "i4"), ("i64", "i8"), ("f32", "f4"))
    }
    with pytest.raises(ClientError) as refusal:
        client("extremes").raw(one | {"f64": np.full((1, 1), np.nan)})
    assert refusal.value.code == "INVALID_ARGUMENT"
    assert "f64 would be null" in str(refusal.value)
