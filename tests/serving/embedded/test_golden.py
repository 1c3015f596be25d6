"""Golden rows in a file: kept to the last bit, and asked of a real server."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from serving import ServerError
from serving.embedded.golden import GoldenAnswer, expect_golden, read_golden, write_golden

USER = -(2**63)


def strings(*values):
    array = np.empty((len(values), 1), object)
    array[:, 0] = values
    return array


def movie(name, age, genre, code):
    """A row of the ensemble of conftest.py, answered on paper."""
    request = {
        "userId": np.array([[USER]]),
        "age": np.array([[age]], np.float32),
        "genres__values": strings(genre),
        "genres__nnzs": np.array([[1]]),
    }
    score = np.float32(USER)
    answer = {
        "same_user": request["userId"],
        "same_age": request["age"],
        "probabilities": np.array([[score, score + np.float32(1)]], np.float32),
        "genre_codes__values": np.array([[code]]),
        "genre_codes__nnzs": request["genres__nnzs"],
    }
    return GoldenAnswer(name, request, answer, {k: np.zeros(v.shape) for k, v in answer.items()})


ROWS = [
    movie("usual values", 1.5, "Krimi ü".encode(), 4),
    movie("nulls", math.nan, b"unseen", 2),
    movie("largest values", math.inf, b"", 2),
]


def test_a_file_keeps_every_bit(tmp_path):
    tensors = {
        "float32": np.array([[np.nan, -np.inf, -0.0, np.float32(0.1)]], np.float32),
        "float16": np.array([[np.inf, 6e-8]], np.float16),
        "float64": np.array([[5e-324, 0.1]]),
        "int64": np.array([[-(2**63), 2**63 - 1]]),
        "uint64": np.array([[2**64 - 1]], np.uint64),
        "bool": np.array([[True, False]]),
        "string": strings(b"\xff", b"\x00", '"é☃"'.encode(), b""),
        "empty": np.zeros((0, 1), np.int8),
    }
    row = GoldenAnswer(
        "limits", tensors, tensors, {n: np.full(t.shape, np.inf) for n, t in tensors.items()}
    )
    write_golden(tmp_path / "golden.json", [row])
    (read,) = read_golden(tmp_path / "golden.json")
    for name, tensor in tensors.items():
        for kept in (read.request[name], read.answer[name]):
            assert (kept.dtype, kept.shape) == (tensor.dtype, tensor.shape)
            if tensor.dtype == object:
                assert kept.tolist() == tensor.tolist()
            else:
                assert kept.tobytes() == tensor.tobytes(), name
        assert read.allowed[name].tolist() == np.full(tensor.shape, np.inf).tolist()
    # NaN and Infinity are no JSON, so that another program could not read them.
    json.loads((tmp_path / "golden.json").read_text(), parse_constant=pytest.fail)


def test_a_server_answers_with_nan_and_infinity(server):
    expect_golden(server.administration, "movies", ROWS, timeout=60)


@pytest.mark.parametrize(
    ("output", "wrong", "reason"),
    [
        ("same_age", np.array([[1.25]], np.float32), "differs in 1 of 1 values"),
        ("same_age", np.array([[np.nan]], np.float32), "differs in 1 of 1 values"),
        ("probabilities", np.array([[0, 1]], np.float32), "differs in 2 of 2 values"),
        ("probabilities", np.array([[USER, 1]], np.float32), "differs in 1 of 2 values"),
        ("same_user", np.array([[USER + 1]]), "differs in 1 of 1 values"),
        ("same_user", np.array([[1]], np.int32), r"is int64\(1, 1\) instead of int32\(1, 1\)"),
        ("other", np.array([[1]]), "is missing"),
    ],
)
def test_a_deviation_names_the_row_and_the_output_and_no_value(server, output, wrong, reason):
    row = ROWS[0]
    other = replace(
        row,
        answer=row.answer | {output: wrong},
        allowed=row.allowed | {output: np.full(wrong.shape, 0.125)},
    )
    with pytest.raises(ServerError) as failure:
        expect_golden(server.administration, "movies", [*ROWS[1:], other], timeout=60)
    text = str(failure.value)
    assert pytest.approx(1.5) == row.request["age"][0, 0]
    assert "golden row 'usual values'" in text
    assert f"the output '{output}'" in text
    failure.match(reason)
    assert not any(value in text for value in ("1.5", "1.25", "9223", "Krimi"))


def test_the_allowed_difference_is_the_exports_or_a_wider_one(server):
    row = ROWS[0]
    near = {"same_age": row.answer["same_age"] * np.float32(1.01)}
    near = replace(row, answer=row.answer | near)
    with pytest.raises(ServerError, match="same_age"):
        expect_golden(server.administration, "movies", [near], timeout=60)
    with pytest.raises(ServerError, match="same_age"):
        expect_golden(server.administration, "movies", [near], timeout=60, tolerance=0.009)
    expect_golden(server.administration, "movies", [near], timeout=60, tolerance=0.02)
    expect_golden(
        server.administration,
        "movies",
        [replace(near, allowed=row.allowed | {"same_age": np.array([[0.02]])})],
        timeout=60,
    )


def test_a_refusal_names_the_row(server):
    without = replace(ROWS[0], request={"userId": ROWS[0].request["userId"]})
    with pytest.raises(
        ServerError, match=r"answer the golden row 'usual values'\. Received: .* INVALID_ARGUMENT"
    ):
        expect_golden(server.administration, "movies", [without], timeout=60)


@pytest.mark.parametrize("content", ["", "{}", '{"rows": [{"name": "a"}]}', '{"rows": 1}', "[]"])
def test_another_file_is_refused(content, tmp_path):
    path = tmp_path / "golden.json"
    with pytest.raises(ServerError, match=r"golden\.json\. Received: FileNotFoundError"):
        read_golden(path)
    path.write_text(content)
    with pytest.raises(ServerError, match=r"Expected the golden rows of an export"):
        read_golden(path)
