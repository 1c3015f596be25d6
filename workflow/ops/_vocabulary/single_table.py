"""One embedding table for several vocabularies: the range of ids of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from workflow.operator.checks import require
from workflow.operator.feature import State
from workflow.schema.column import Column

from .vocabulary import Ids


def place_name(name: str) -> str:
    """The state's name for the place of a vocabulary."""
    return f"table.{name}"


def places(vocabularies: Mapping[str, Ids]) -> State:
    """The place of each vocabulary, one after another, and the rows of the whole table.

    Args:
        vocabularies: the ids of each, as for a separate table.
    """
    state, offset = {}, 0
    # The id 0, padding, is shared.
    rows = 1 + sum(ids.end - 1 for ids in vocabularies.values())
    for name, ids in vocabularies.items():
        state[place_name(name)] = Column(np.array([offset, rows]))
        offset += ids.end - 1
    return state


def placed(ids: Ids, name: str, state: State) -> tuple[Ids, int]:
    """A vocabulary's ids at their place, and the rows of the whole table.

    Raises:
        WorkflowError: the state has no place where the ids fit.
    """
    place = state[place_name(name)].array
    require(
        place.dtype == np.int64 and len(place) == 2 and 0 <= place[0] <= place[1] - ids.end,
        f"Expected the place of {name!r} in the single table. Received: {place!r:.200}.",
    )
    return replace(ids, offset=int(place[0])), int(place[1])
