"""Network inputs renamed to the workflow's columns that feed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from training.errors import TrainingError
from workflow.schema.names import did_you_mean, listed
from workflow.wire.request_rules import NNZS, VALUES


def name_inputs(inputs: Iterable[str], columns: Mapping[str, str]) -> dict[str, str]:
    """The inputs that are served under another name than their own, each with that name.

    Args:
        inputs: the network's names.
        columns: input -> column of the workflow; `tags` stands for `tags__values` and `tags__nnzs`
            if those are the inputs.

    Raises:
        TrainingError: an unknown input, or two inputs with one name.

    Example:
        >>> name_inputs(["x-sum", "tags__values", "tags__nnzs"], {"x-sum": "total", "tags": "genres"})
        {'x-sum': 'total', 'tags__values': 'genres__values', 'tags__nnzs': 'genres__nnzs'}
    """
    names = {name: _column_of(name, columns) for name in inputs}
    expect_known(names, columns)
    expect_distinct(names.values())
    return {name: column for name, column in names.items() if name != column}


def expect_known(inputs: Iterable[str], named: Iterable[str]) -> None:
    """Check that names are inputs of the network, or columns of which both halves are.

    Raises:
        TrainingError: names the inputs, and the others.
    """
    names = [*inputs]
    columns = {*names, *map(base_of, names)}
    if unknown := [name for name in named if name not in columns]:
        raise TrainingError(
            f"Expected columns={{input of the network: column of the workflow}}. The inputs are "
            f"{listed(names)}. Received: {listed(map(repr, unknown))}, which is not an input."
            + did_you_mean(unknown, columns)
        )


def base_of(name: str) -> str:
    """The column of an input, whose name that of a list's half extends."""
    return name.removesuffix(VALUES).removesuffix(NNZS)


def expect_distinct(columns: Iterable[str]) -> None:
    """Check that no column feeds two inputs, or two places of a matrix.

    Raises:
        TrainingError: names the columns.
    """
    if twice := sorted(n for n, count in Counter(columns).items() if count > 1):
        raise TrainingError(
            "Expected a column for each input of the network. Received: columns of which "
            f"{listed(twice)} feeds two inputs. Let the workflow make the column twice, "
            "with ops.Rename."
        )


def expect_single(columns: Mapping[str, str | Sequence[str]]) -> dict[str, str]:
    """The columns of a TensorFlow network, which joins single columns itself.

    Raises:
        TrainingError: several columns for an input.
    """
    for name, column in columns.items():
        if not isinstance(column, str):
            raise TrainingError(
                f"Expected one column for the input {name!r} of a network of TensorFlow, since only "
                f"the inputs of an ONNX model are packed from columns. Received: {listed(column)}. "
                "Take each as an input and join them in the network, keras.layers.Concatenate()."
            )
    return {name: str(column) for name, column in columns.items()}


def _column_of(name: str, columns: Mapping[str, str]) -> str:
    if name in columns:
        return columns[name]
    for half in (VALUES, NNZS):
        if (base := name.removesuffix(half)) != name and base in columns:
            return columns[base] + half
    return name
