"""Both backends inside a real server: right answers, one call for many requests, bad requests."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from serving import ClientError


def sums_request(users, genres):
    values = [genre for row in genres for genre in row]
    return {
        "userId": np.array(users, np.int64).reshape(-1, 1),
        "genres__values": np.array(values, np.int32).reshape(-1, 1),
        "genres__nnzs": np.array([len(row) for row in genres], np.int64).reshape(-1, 1),
    }


def test_tensorflow_serves_lists_by_a_named_signature(client):
    answer = client("sums").raw(sums_request([10, 20, 30], [[1, 2], [], [2**31 - 1]]))
    assert answer["total"].tolist() == [[13], [20], [30 + 2**31 - 1]]
    assert answer["total"].dtype == np.int64


def test_tensorflow_answers_an_empty_request(client):
    assert client("sums").raw(sums_request([], []))["total"].shape == (0, 1)


def test_tensorflow_serves_keras_variables_that_were_saved_as_such(client):
    inputs = {"x": np.array([[3], [4]], np.float32), "word": np.array([["a"], ["z"]], object)}
    assert client("keras").predict(inputs)["sum"].tolist() == [[7], [8]]


def test_onnxruntime_decodes_strings(client):
    words = ["blue", "grün", "red", ""]
    request = {"word": np.array([[word.encode()] for word in words], object)}
    answer = client("codes").raw(request)
    assert answer["code"].tolist() == [[7], [8], [1], [1]]
    assert [value.decode() for value in answer["same"].reshape(-1)] == words


def test_onnxruntime_reads_external_data(client):
    answer = client("external").raw({"id": np.array([[999], [0]], np.int64)})
    assert answer["vector"].tolist() == [[[3996, 3997, 3998, 3999]], [[0, 1, 2, 3]]]


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorflow"])
def test_a_boolean_is_true_whatever_byte_a_client_sends_for_it(client, backend):
    """As in the numpy of the Python step. A library that takes the byte for a number answers 7."""
    flags = np.array([[7], [1], [0], [255]], np.uint8).view(np.bool_)
    answer = client(f"flags_{backend}").raw({"flag": flags})
    assert answer["number"].tolist() == [[1], [1], [0], [1]]


def send_together(client, rows):
    """Send one request for each row at once; each result is an answer or an error."""
    batched = client("batched")

    def send(row):
        x, word = row
        try:
            return batched.raw(
                {"x": np.array([[x]], np.float32), "word": np.array([[word.encode()]], object)}
            )
        except ClientError as error:
            return error

    with ThreadPoolExecutor(len(rows)) as threads:
        return list(threads.map(send, rows))


def test_requests_that_arrive_together_share_one_call(client):
    answers = send_together(client, [(float(row), f"w{row}") for row in range(8)])
    assert [answer["double"].item() for answer in answers] == [2.0 * r for r in range(8)]
    assert [answer["greeting"].item() for answer in answers] == [
        f"hello w{row}".encode() for row in range(8)
    ]
    assert {answer["rows_in_call"].item() for answer in answers} == {8}


def test_a_bad_request_among_good_ones_fails_alone(client):
    rows = [(float(row), "w") for row in range(8)]
    rows[3] = (-1.0, "secret")
    answers = send_together(client, rows)
    error = answers.pop(3)
    assert error.code == "INVALID_ARGUMENT"
    assert error.message.startswith("The model cannot answer these inputs. Error id ")
    assert [answer["double"].item() for answer in answers] == [0, 2, 4, 8, 10, 12, 14]


def test_the_reason_of_a_library_is_in_the_log_only(client, server, wait_for):
    request = sums_request([1, 2], [[5], [6, 7]])
    sums = client("sums")
    with pytest.raises(ClientError) as refusal:
        sums.raw({**request, "userId": request["userId"][:1].repeat(3, 0)})
    assert refusal.value.code == "INVALID_ARGUMENT"
    text, error_id = refusal.value.message.split(" Error id ")
    assert text == "The model cannot answer these inputs."
    # The server writes its log a moment after its answer.
    wait_for(lambda: error_id[:12] in server.log_path.read_text())
    assert sums.raw(request)["total"].tolist() == [[6], [15]]


@pytest.mark.parametrize("spoil", [lambda n: n + 1, lambda n: -n], ids=["too long", "negative"])
def test_wrong_row_lengths_are_named(client, spoil):
    request = sums_request([1, 2], [[5], [6, 7]])
    with pytest.raises(ClientError) as refusal:
        client("sums").raw({**request, "genres__nnzs": spoil(request["genres__nnzs"])})
    assert refusal.value.code == "INVALID_ARGUMENT"
    assert refusal.value.message == (
        "The request does not fit the model's inputs. Expected genres__nnzs to be row lengths that "
        "add up to the values. Received: 3 values and 2 lengths."
    )


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda r: {"userId": r["userId"]}, id="missing"),
        pytest.param(lambda r: {**r, "extra": r["userId"]}, id="extra"),
        pytest.param(lambda r: {**r, "userId": r["userId"].astype(np.int32)}, id="mistyped"),
        pytest.param(lambda r: {**r, "userId": r["userId"][:, 0]}, id="misshapen"),
        pytest.param(lambda r: {**r, "userId": r["userId"].reshape(1, -1)}, id="transposed"),
    ],
)
def test_the_server_refuses_wrong_tensors_and_goes_on(client, spoil):
    request = sums_request([1, 2], [[5], [6, 7]])
    sums = client("sums")
    messages = set()
    for _ in range(2):
        with pytest.raises(ClientError) as refusal:
            sums.raw(spoil(request))
        assert refusal.value.code == "INVALID_ARGUMENT"
        messages.add(refusal.value.message)
    assert len(messages) == 1
    assert sums.raw(request)["total"].tolist() == [[6], [15]]


def test_an_id_beyond_the_table_is_the_requests_fault(client):
    with pytest.raises(ClientError, match="INVALID_ARGUMENT: The model cannot answer"):
        client("external").raw({"id": np.array([[1000]], np.int64)})


def test_bytes_that_are_not_text_are_refused(client):
    with pytest.raises(ClientError, match="INVALID_ARGUMENT: The model cannot answer"):
        client("codes").raw({"word": np.array([[b"\xff"]], object)})
