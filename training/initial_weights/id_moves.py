"""Ids of one meaning in two fits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from workflow import Workflow, WorkflowError
from workflow.schema.tags import FIT
from workflow.transform.reverse_mapping import fits_of_values

Ids = npt.NDArray[np.int64]


def id_move(column: str, workflow: Workflow, earlier: Workflow) -> tuple[Ids, Ids] | str | None:
    """The ids of a column that have a meaning in both fits, in each of them; or why it is unknown.

    None where each id has the same meaning in both: of an equal fit, and of ids that are in the raw data.

    Example:
        >>> from workflow import ops
        >>> monday, tuesday = (
        ...     Workflow(["item"] >> ops.Categorify()).fit({"item": items})
        ...     for items in (["a"], ["b", "b", "a"])
        ... )
        >>> [ids.tolist() for ids in id_move("item", tuesday, monday)]
        [[0, 1, 2, 4], [0, 1, 2, 3]]
    """
    if column not in workflow.output_schema or column not in earlier.output_schema:
        return "it is not a column of both workflows"
    fits = [each.output_schema[column].properties.get(FIT) for each in (workflow, earlier)]
    if fits[0] == fits[1]:
        return None
    try:
        new, old = workflow.reverse_mapping(column), earlier.reverse_mapping(column)
    except WorkflowError:
        return "the values of its ids are unknown, since no Categorify alone has made them"
    if (kinds := [_kind(ids["value"]) for ids in (new, old)])[0] != kinds[1]:
        return f"the values of its ids are {new['value'].dtype}, were {old['value'].dtype}"
    if new["value"].dtype != pl.String and (
        fits_of_values(workflow, column) != fits_of_values(earlier, column)
    ):
        return "the values of its ids are ids of another fit"
    pairs = []
    for kind in new["kind"].unique():
        new_ids, old_ids = (ids.filter(kind=kind) for ids in (new, old))
        if kind == "value":
            pairs.append(_joined(new_ids, old_ids))
        elif len(new_ids) == len(old_ids):
            pairs.append((new_ids["id"].to_numpy(), old_ids["id"].to_numpy()))
    return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])


def _kind(values: pl.Series) -> object:
    """The dtype that values of two fits must have in common; integers of all widths are alike."""
    return "integer" if values.dtype.is_integer() else values.dtype


def _joined(new: pl.DataFrame, old: pl.DataFrame) -> tuple[Ids, Ids]:
    """The ids of the values that both have."""
    if new["value"].dtype.is_integer():
        new, old = (ids.with_columns(pl.col("value").cast(pl.Int128)) for ids in (new, old))
    both = new.join(old, on="value", suffix="_earlier", nulls_equal=True)
    return both["id"].to_numpy(), both["id_earlier"].to_numpy()
