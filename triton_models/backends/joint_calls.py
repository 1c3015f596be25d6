"""Answer the requests of one `execute` with one call of the model.

A model call costs about as much for one row as for fifty, so simultaneous requests are
concatenated, and the answer is split again. Runs inside the server: numpy and the standard library
only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING or __package__:
    from workflow.wire.request_rules import (
        NNZS,
        VALUES,
        is_list_values,
        lengths_fit,
        stacked,
        widens,
    )
else:  # In the server it is beside this file, outside any package.
    from request_rules import NNZS, VALUES, is_list_values, lengths_fit, stacked, widens

Tensors = dict[str, npt.NDArray[Any]]
Call = Callable[[Tensors], Tensors]
T = TypeVar("T")


class RequestError(ValueError):
    """A request that no model can answer; the text may be shown to the client."""


def attempt(function: Callable[..., T], *arguments: Any) -> T | Exception:
    """Call a function; the result, or the exception that it raised.

    An error in one request must not affect the others, or the server.

    Example:
        >>> attempt(int, "7"), attempt(int, "seven")
        (7, ValueError("invalid literal for int() with base 10: 'seven'"))
    """
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - see above
        return error


def answer(
    requests: Sequence[Tensors], call: Call, ragged: Collection[str] = ()
) -> list[Tensors | Exception]:
    """Answer every request, in order, with as few calls as possible.

    Requests whose tensors agree in dtype and in every dimension except the first share a call. If a
    shared call fails, each of its requests is called alone, so that only the faulty one fails.

    Args:
        requests: the input tensors of each request. A list column is a pair `x__values`
            [nnz, ...] and `x__nnzs` [N, 1]; any other tensor is [N, ...].
        call: the model.
        ragged: the names of tensors that may differ in width. Tensors of shape [N, width] are
            padded to the widest in a shared call; tensors of shape [elements] are concatenated.

    Returns:
        The output tensors of each request, or the exception that it caused.

    Example:
        >>> one, two = {"x": np.ones((1, 1))}, {"x": np.ones((2, 1))}
        >>> [len(out["y"]) for out in answer([one, two], lambda tensors: {"y": tensors["x"]})]
        [1, 2]
    """
    answers: list[Tensors | Exception] = [RequestError("not called")] * len(requests)
    groups: dict[Any, list[int]] = {}
    counts: list[int | None] = []
    for index, request in enumerate(requests):
        # A single request needs no joining.
        counts.append(row_count(request, ragged) if len(requests) > 1 else None)
        wrong = attempt(check_row_lengths, request)
        if wrong is not None:
            answers[index] = wrong
        else:
            key = index if counts[index] is None else _joint_key(request, ragged)
            groups.setdefault(key, []).append(index)
    for members in groups.values():
        group = [requests[index] for index in members]
        rows = [counts[index] or 0 for index in members]
        for index, result in zip(members, _answer_group(group, rows, call, ragged), strict=True):
            answers[index] = result
    return answers


def check_row_lengths(request: Tensors) -> None:
    """Refuse row lengths that do not match their values.

    In a shared call such a request would shift the lists of all the others.

    Raises:
        RequestError: lengths that are negative or do not add up to the number of values.
    """
    for name in _lengths(request):
        lengths, values = request[name], request.get(name.removesuffix(NNZS) + VALUES)
        if values is None:
            continue
        count = values.shape[0] if values.ndim else -1
        if not lengths_fit(lengths, count):
            raise RequestError(
                f"Expected {name} to be row lengths that add up to the values. "
                f"Received: {count} values and {lengths.size} lengths."
            )


def check_padded_lengths(request: Tensors) -> None:
    """Refuse lengths that do not fit into padded rows, which a graph would cut to the rows.

    Raises:
        RequestError: lengths that are negative or beyond the width.
    """
    for name in _lengths(request):
        lengths, rows = request[name], request.get(name.removesuffix(NNZS))
        if rows is None or not lengths.size:
            continue
        if lengths.min() < 0 or lengths.max() > rows.shape[1]:
            raise RequestError(f"Expected {name} from 0 to the width of the rows, {rows.shape[1]}.")


def _lengths(request: Tensors) -> list[str]:
    """The names of row lengths."""
    return [name for name in request if name.endswith(NNZS)]


def row_count(tensors: Tensors, ragged: Collection[str] = ()) -> int | None:
    """The number of rows if all tensors agree in it, else None.

    Ignores the values of list columns, which have another number of rows, and one-dimensional
    ragged tensors.
    """
    counts = {
        tensor.shape[0] if tensor.ndim else None
        for name, tensor in tensors.items()
        # The suffix first, which most names lack: a request may have many tensors.
        if not (name.endswith(VALUES) and is_list_values(name, tensors))
        and not (name in ragged and tensor.ndim == 1)
    }
    return counts.pop() if len(counts) == 1 else None


def _joint_key(request: Tensors, ragged: Collection[str]) -> Any:
    """Properties that requests must have in common to share a call."""
    # Hashing the dtype would take longer than everything else.
    return tuple(
        [
            (name, tensor.dtype.char, tensor.ndim if name in ragged else tensor.shape[1:])
            for name, tensor in request.items()
        ]
    )


def _join(tensors: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Concatenate tensors, padding narrower ones."""
    shapes = {tensor.shape[1:] for tensor in tensors}
    if len(shapes) > 1:
        elements = sum(tensor.size for tensor in tensors)
        if widens(sum(map(len, tensors)), max(width for (width,) in shapes), elements):
            raise RequestError("Expected widths that can be joined.")
    return stacked(tensors)


def _joint(group: list[Tensors], ragged: Collection[str]) -> Tensors:
    """The tensors of all requests. Those of one dtype and shape are concatenated together, then cut.

    A concatenation of many small arrays takes little longer than one of few.
    """
    joint: Tensors = {}
    alike: dict[Any, list[str]] = {}
    for name, tensor in group[0].items():
        if name in ragged or name.endswith(VALUES):
            joint[name] = _join([request[name] for request in group])
        else:
            alike.setdefault((tensor.dtype.char, tensor.shape[1:]), []).append(name)
    for names in alike.values():
        whole = np.concatenate([request[name] for name in names for request in group])
        parts = whole.reshape(len(names), len(whole) // len(names), *whole.shape[1:])
        joint.update(zip(names, parts, strict=True))
    return joint


def _answer_group(
    group: list[Tensors], rows: list[int], call: Call, ragged: Collection[str]
) -> list[Tensors | Exception]:
    if len(group) > 1:
        try:
            return list(_split(call(_joint(group, ragged)), rows))
        except Exception:  # noqa: BLE001, S110 - the faulty request is reported when called alone
            pass
    return [attempt(call, request) for request in group]


def _split(outputs: Tensors, rows: list[int]) -> list[Tensors]:
    """Split the outputs of a shared call among its requests.

    Raises:
        RequestError: the model does not work row by row: its outputs have another number of rows. Or
            numbers have the names of a list, so that parts of it could be another request's.
    """
    if row_count(outputs) != sum(rows):
        raise RequestError(f"Expected outputs of {sum(rows)} rows.")
    ends = np.cumsum(rows)
    parts: list[Tensors] = [{} for _ in rows]
    for name, tensor in outputs.items():
        cuts = ends
        if is_list_values(name, outputs):
            lengths = outputs[name.removesuffix(VALUES) + NNZS]
            cuts = np.append(0, np.cumsum(lengths))[ends]
            may_be_rows = len(tensor) == ends[-1] and not np.array_equal(cuts, ends)
            if may_be_rows or not lengths_fit(lengths, len(tensor)):
                raise RequestError(f"Expected {name} as the elements of lists.")
        begin = 0
        for part, end in zip(parts, cuts.tolist(), strict=True):
            part[name] = tensor[begin:end]
            begin = end
    return parts
