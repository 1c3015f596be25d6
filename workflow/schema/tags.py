"""Tags and properties of a column on its way through operators.

Tags pass through every operator. A tag that an operator adds takes the place of those that it
contradicts, and brings those that it implies:

| added         | takes away              | brings          |
|---------------|-------------------------|-----------------|
| `categorical` | `continuous`            |                 |
| `continuous`  | `categorical`           |                 |
| `user_id`     | `item_id`, `session_id` | `user`, `id`    |
| `item_id`     | `user_id`, `session_id` | `item`, `id`    |
| `session_id`  | `user_id`, `item_id`    | `session`, `id` |

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

# Of these a column carries one.
EXCLUSIVE = (
    {Tags.CATEGORICAL.value, Tags.CONTINUOUS.value},
    {Tags.USER_ID.value, Tags.ITEM_ID.value, Tags.SESSION_ID.value},
)
IMPLIED: Mapping[str, tuple[str, ...]] = {
    Tags.USER_ID.value: (Tags.USER.value, Tags.ID.value),
    Tags.ITEM_ID.value: (Tags.ITEM.value, Tags.ID.value),
    Tags.SESSION_ID.value: (Tags.SESSION.value, Tags.ID.value),
}
# All but those that say whose or in which context a value is, and that it is a number.
OWN = frozenset(
    tag.value
    for tag in Tags
    if tag not in (Tags.USER, Tags.ITEM, Tags.SESSION, Tags.CONTEXT, Tags.CONTINUOUS)
)
# Properties that say something of the values, and end with them.
FACTS = frozenset({"cardinality", "domain", "embedding_size"})


def add_tags(tags: Iterable[str], added: Iterable[str]) -> tuple[str, ...]:
    """A column's tags and further ones, the latter being right where they contradict each other.

    Example:
        >>> add_tags(["continuous", "user"], ["categorical"])
        ('user', 'categorical')
        >>> add_tags([], [Tags.ITEM_ID])
        ('item', 'id', 'item_id')
    """
    made = dict.fromkeys(map(_name, tags))
    for name in map(_name, added):
        for other in (other for kind in EXCLUSIVE if name in kind for other in kind - {name}):
            made.pop(other, None)
        made.update(dict.fromkeys((*IMPLIED.get(name, ()), name)))
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
