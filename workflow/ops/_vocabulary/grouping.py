"""Vocabularies of groups of columns, and those that remain when columns are removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from workflow.operator.checks import require
from workflow.operator.feature import Groups, State
from workflow.schema.column import Column, Strings

from .combinations import CombinedVocabulary
from .vocabulary import SharedVocabulary, Vocabulary

# State of a column whose group has lost others: the name of its vocabulary.
MEMBER = "member"


def vocabularies_of(
    groups: Groups, state: State, name_sep: str, *, combine: bool
) -> list[Vocabulary]:
    """A vocabulary for each group of columns.

    Args:
        groups: the groups; a single column is a group of one.
        state: the learnt state; empty before.
        name_sep: separator between a group's names in the name of its vocabulary.
        combine: whether a group's values are combined; else they share a vocabulary.

    Raises:
        WorkflowError: two vocabularies would have one name, or a column two vocabularies.
    """
    members: dict[str, tuple[str, ...]] = {}
    for group in groups:
        vocabulary = state.get(f"{MEMBER}.{group[0]}") if len(group) == 1 else None
        name = name_sep.join(group) if vocabulary is None else _text(vocabulary)
        require(
            vocabulary is not None or name not in members,
            f"Two vocabularies would be named {name!r}. Rename a column, or set another name_sep.",
        )
        members[name] = (*members.get(name, ()), *group)
    if not combine:
        _expect_once([name for group in members.values() for name in group])
    return [
        (CombinedVocabulary if combine and len(group) > 1 else SharedVocabulary)(name, group)
        for name, group in members.items()
    ]


def _text(name: Column) -> str:
    require(
        isinstance(name.values, Strings) and name.rows == 1,
        f"Expected the name of a vocabulary. Received: {name.values!r:.200}.",
    )
    return str(name.array[0])


def _expect_once(names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    require(
        not twice,
        f"Column {''.join(twice[:1])!r} is in two groups, and would get an id from each. Leave it in "
        'one, or set encode_type="combo" to combine the columns of a group.',
    )


def member_names(vocabularies: Sequence[Vocabulary], state: State) -> list[str]:
    """The names of the state entries that store each column's vocabulary."""
    names = [f"{MEMBER}.{column}" for v in vocabularies for column in v.columns]
    return [name for name in names if name in state]


def remaining(
    vocabularies: Sequence[Vocabulary], state: State, columns: Collection[str]
) -> Iterator[tuple[Vocabulary, State]]:
    """The vocabularies of some columns, and the state that names them if the columns do not.

    A shared vocabulary remains as long as one of its columns does; a combination needs all of them.
    """
    for vocabulary in vocabularies:
        rest = [column for column in vocabulary.columns if column in columns]
        whole = len(rest) == len(vocabulary.columns)
        if not rest or not (whole or isinstance(vocabulary, SharedVocabulary)):
            continue
        broken = rest if not whole else [c for c in rest if f"{MEMBER}.{c}" in state]
        members = {f"{MEMBER}.{c}": Column(Strings.of([vocabulary.name])) for c in broken}
        yield type(vocabulary)(vocabulary.name, tuple(rest)), members
