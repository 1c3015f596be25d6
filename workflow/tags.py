"""What becomes of a column's tags and properties on its way through operators.

Tags pass through every operator. A tag that an operator adds takes the place of those that it
contradicts, and brings those that it implies:

| added         | takes away    | brings |
|---------------|---------------|--------|
| `categorical` | `continuous`  |        |
| `continuous`  | `categorical` |        |
| `user_id`     | `item_id`     | `user` |
| `item_id`     | `user_id`     | `item` |

What is computed of columns and is another thing than they are has the tags that they share, but for
those that name what a column itself is (`OWN`): the mean rating of a user is no user's id.

Properties are the user's own words and facts about values. The user's own pass through every
operator; of several columns what is computed has those of all of them on which no two differ. Facts
hold only as long as the values stay what they are: `FACTS` as long as each value does, and
`value_count` as long as a list keeps its length. The operator that changes them states them anew or
not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .schema import ColumnSchema, Tags

CONTRADICTED: Mapping[str, str] = {
    Tags.CATEGORICAL.value: Tags.CONTINUOUS.value,
    Tags.CONTINUOUS.value: Tags.CATEGORICAL.value,
    Tags.USER_ID.value: Tags.ITEM_ID.value,
    Tags.ITEM_ID.value: Tags.USER_ID.value,
}
IMPLIED: Mapping[str, str] = {
    Tags.USER_ID.value: Tags.USER.value,
    Tags.ITEM_ID.value: Tags.ITEM.value,
}
OWN = frozenset(
    tag.value
    for tag in (Tags.USER_ID, Tags.ITEM_ID, Tags.TARGET, Tags.TIME, Tags.CATEGORICAL, Tags.LIST)
)
# Properties that say something of the values, and end with them.
FACTS = frozenset({"cardinality", "domain", "embedding_size"})


def add_tags(tags: Iterable[str], added: Iterable[str]) -> tuple[str, ...]:
    """A column's tags and further ones, the latter being right where they contradict each other.

    Example:
        >>> add_tags(["continuous", "user"], ["categorical"])
        ('user', 'categorical')
        >>> add_tags([], [Tags.ITEM_ID])
        ('item', 'item_id')
    """
    made = dict.fromkeys(map(_name, tags))
    for name in map(_name, added):
        made.pop(CONTRADICTED.get(name, ""), None)
        if name in IMPLIED:
            made.setdefault(IMPLIED[name])
        made.setdefault(name)
    return tuple(made)


def computed_of(*columns: ColumnSchema) -> ColumnSchema:
    """A column as what is computed of columns, and is another thing than they are, inherits from it.

    Its tags and properties count; its dtype is that of the first column.

    Example:
        >>> user = ColumnSchema("userId", "int64", True, tags=("user_id", "user", "mine"))
        >>> age = ColumnSchema("age", "int64", tags=("user",), properties={"unit": "years"})
        >>> both = computed_of(user, age)
        >>> both.tags, both.properties
        (('user',), {'unit': 'years'})
    """
    first, *others = columns
    shared = (tag for tag in first.tags if all(tag in column.tags for column in others))
    tags = tuple(tag for tag in shared if tag not in OWN)
    kept = [properties_after(column, is_list=False) for column in columns]
    merged = {name: value for properties in kept for name, value in properties.items()}
    agreed = {
        name: value
        for name, value in merged.items()
        if all(properties.get(name, value) == value for properties in kept)
    }
    return ColumnSchema(first.name, first.dtype, tags=tags, properties=agreed)


def _name(tag: str) -> str:
    return tag.value if isinstance(tag, Tags) else str(tag)


def properties_after(before: ColumnSchema, *, is_list: bool) -> dict[str, Any]:
    """The properties of a column that still hold of what an operator makes of each value.

    Args:
        before: the column.
        is_list: whether what is made of it is a list too, and then one of as many elements.

    Example:
        >>> age = ColumnSchema("age", "int64", properties={"unit": "years", "cardinality": 9})
        >>> properties_after(age, is_list=False)
        {'unit': 'years'}
    """
    ended = FACTS if is_list and before.is_list else FACTS | {"value_count"}
    return {name: value for name, value in before.properties.items() if name not in ended}
