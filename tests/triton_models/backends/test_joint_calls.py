"""Requests that share a call get what they would get alone."""

import numpy as np
import pytest

from triton_models.backends.joint_calls import (
    RequestError,
    answer,
    check_padded_lengths,
    check_row_lengths,
    row_count,
)


class Model:
    """Adds up each row's list and x, refuses negative x, and remembers the rows of its calls."""

    def __init__(self):
        self.calls = []

    def __call__(self, tensors):
        x, lengths, values = tensors["x"], tensors["l__nnzs"], tensors["l__values"]
        self.calls.append(len(x))
        if np.any(x < 0):
            raise ValueError(f"negative: {x}")
        rows = np.repeat(np.arange(len(x)), lengths[:, 0])
        total = np.zeros_like(x)
        np.add.at(total[:, 0], rows, values[:, 0])
        return {"total": x + total, "copy__values": values, "copy__nnzs": lengths}


def request(xs, lists, dtype=np.int64):
    return {
        "x": np.array(xs, dtype).reshape(-1, 1),
        "l__values": np.array([v for row in lists for v in row], np.int64).reshape(-1, 1),
        "l__nnzs": np.array([len(row) for row in lists], np.int32).reshape(-1, 1),
    }


REQUESTS = [
    request([1], [[1, 2]]),
    request([], []),
    request([2, 3], [[], []]),
    request([4, 5], [[10], [20, 30, 40]]),
]


@pytest.mark.parametrize("first", range(len(REQUESTS)))
def test_joined_requests_are_answered_as_if_alone(first):
    model = Model()
    requests = REQUESTS[first:] + REQUESTS[:first]
    answers = answer(requests, model)
    assert model.calls == [5]
    for joint, single in zip(answers, map(Model(), requests), strict=True):
        assert joint.keys() == single.keys()
        for name, tensor in single.items():
            np.testing.assert_array_equal(joint[name], tensor)
            assert joint[name].dtype == tensor.dtype


@pytest.mark.parametrize("rows", [(2, 0, 3), (0, 0)])
def test_columns_alike_keep_their_own_values(rows):
    """Tensors of one dtype and shape are concatenated together."""
    random = np.random.default_rng(0)
    kinds = {
        **{f"id{n}": ((1,), np.int32) for n in range(4)},
        "flat": ((), np.int32),
        "wide": ((3,), np.int32),
        **{f"x{n}": ((1,), np.float32) for n in range(2)},
        **{f"s{n}": ((1,), object) for n in range(2)},
    }
    requests = [
        {
            name: random.integers(0, 99, (count, *shape))
            .astype(str if kind is object else kind)
            .astype(kind)
            for name, (shape, kind) in kinds.items()
        }
        for count in rows
    ]
    calls = []
    answers = answer(requests, lambda tensors: calls.append(tensors) or tensors)
    assert len(calls) == 1
    for found, given in zip(answers, requests, strict=True):
        assert found.keys() == given.keys()
        for name, tensor in given.items():
            np.testing.assert_array_equal(found[name], tensor)
            assert found[name].dtype == tensor.dtype


def test_only_the_bad_request_fails():
    bad = request([-1, 7], [[1], []])
    answers = answer([REQUESTS[0], bad, REQUESTS[3]], Model())
    assert "negative" in str(answers[1])
    assert answers[0]["total"].tolist() == [[4]]
    assert answers[2]["total"].tolist() == [[14], [95]]


def test_wrong_row_lengths_never_reach_the_others():
    bad = {**REQUESTS[0], "l__nnzs": np.array([[3]], np.int32)}
    model = Model()
    answers = answer([REQUESTS[3], bad, REQUESTS[0]], model)
    assert isinstance(answers[1], RequestError)
    assert answers[0]["total"].tolist() == [[14], [95]]
    assert answers[2]["total"].tolist() == [[4]]
    assert model.calls == [3]


@pytest.mark.parametrize(
    "lengths",
    [[[-1], [3]], [[1], [2]], [[0], [0]], [[2**62], [2**62]], [[2**63 - 1], [-(2**63) + 3]]],
)
def test_row_lengths_must_add_up(lengths):
    bad = {"l__values": np.zeros((2, 1)), "l__nnzs": np.array(lengths, np.int64)}
    with pytest.raises(RequestError, match="Expected l__nnzs to be row lengths"):
        check_row_lengths(bad)


def test_requests_of_other_shapes_and_dtypes_are_called_apart():
    calls = []

    def double(tensors):
        calls.append(tensors["x"].shape)
        return {"y": tensors["x"] * 2}

    shapes = [(2, 3), (1, 4), (5, 3)]
    requests = [{"x": np.ones(shape, np.float32)} for shape in shapes]
    requests.append({"x": np.ones((1, 3), np.float64)})
    answers = answer(requests, double)
    assert [out["y"].shape for out in answers] == [*shapes, (1, 3)]
    assert sorted(calls) == [(1, 3), (1, 4), (7, 3)]


def test_a_model_that_is_not_row_by_row_is_called_for_each_request():
    requests = [{"x": np.full((2, 1), value)} for value in (1.0, 3.0)]
    answers = answer(requests, lambda tensors: {"mean": tensors["x"].mean(keepdims=True)})
    assert [out["mean"].item() for out in answers] == [1.0, 3.0]


@pytest.mark.parametrize("values", [1, 2], ids="{} a row".format)
@pytest.mark.parametrize("lengths", [[[2], [5]], [[2], [0]], [[0], [2]], [[1], [1]]])
def test_numbers_named_as_a_list_stay_with_their_requests(lengths, values):
    def call(tensors):
        return {"y__values": tensors["x"].repeat(values, 0), "y__nnzs": tensors["n"]}

    requests = [{"x": np.array([[n]]), "n": np.array([own])} for n, own in enumerate(lengths)]
    assert [(a["y__values"].tolist(), a["y__nnzs"].tolist()) for a in answer(requests, call)] == [
        ([[0]] * values, [lengths[0]]),
        ([[1]] * values, [lengths[1]]),
    ]


def test_tensors_without_rows_are_not_joined():
    requests = [{"x": np.array(float(value))} for value in range(2)]
    assert [out["y"] for out in answer(requests, lambda t: {"y": t["x"] + 1})] == [1.0, 2.0]
    for other in ({"y": np.ones((3, 1))}, {"y": np.ones(3)}, {"y__values": np.ones((3, 1))}):
        assert row_count({"x": np.ones((2, 1)), **other}) is None


def test_ragged_rows_without_their_widths_share_a_call():
    """As onnxruntime takes them: the elements of all rows, and the width of each."""
    calls = []

    def sums(tensors):
        calls.append(len(tensors["x"]))
        return {"y": np.add.reduceat(tensors["x"], np.cumsum(tensors["w"]) - tensors["w"])}

    requests = [
        {"x": np.array([1, 2, 3]), "w": np.array([3])},
        {"x": np.array([4, 5, 6, 7]), "w": np.array([2, 2])},
    ]
    assert [out["y"].tolist() for out in answer(requests, sums, {"x"})] == [[6], [9, 13]]
    assert calls == [7]


def test_padded_lengths_are_from_0_to_the_width():
    rows = np.zeros((2, 3))
    check_padded_lengths({"x": rows, "x__nnzs": np.array([[0], [3]])})
    check_padded_lengths({"x": rows[:0], "x__nnzs": np.zeros((0, 1), np.int64)})
    for length in (-1, 4):
        with pytest.raises(RequestError, match="x__nnzs from 0 to the width of the rows, 3"):
            check_padded_lengths({"x": rows, "x__nnzs": np.array([[0], [length]])})


def test_a_far_wider_request_does_not_widen_the_others():
    calls = []

    def width(tensors):
        calls.append(tensors["x"].shape)
        return {"y": np.full((len(tensors["x"]), 1), tensors["x"].shape[1])}

    requests = [{"x": np.zeros(shape, np.int8)} for shape in ((3_000, 8), (1, 10_000), (2_000, 4))]
    answers = answer(requests, width, {"x"})
    assert [out["y"].shape for out in answers] == [(3_000, 1), (1, 1), (2_000, 1)]
    assert max(rows * width for rows, width in calls) < 30_000
    near = [{"x": np.zeros(shape, np.int8)} for shape in ((3_000, 8), (1, 1_000))]
    calls.clear()
    answer(near, width, {"x"})
    assert calls == [(3_001, 1_000)]
