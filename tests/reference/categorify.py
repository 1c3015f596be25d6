"""Categorify: ids by descending frequency, ties by value, behind padding, null and the unknown."""

from collections import Counter

from hash_bucket import hash_of
from tables import per_element


def fit(table, columns, settings):
    """The columns of each vocabulary, and its values in the order of their ids."""
    combine = settings.get("encode_type") == "combo"
    separator = settings.get("name_sep", "_")
    groups = [[group] if isinstance(group, str) else list(group) for group in columns]
    state = {}
    for group in groups:
        name = separator.join(group)
        if name in (settings.get("vocabs") or {}):
            values = list(settings["vocabs"][name])
        elif combine and len(group) > 1:
            rows = zip(*(table[column] for column in group), strict=True)
            values = chosen(
                [row for row in rows if any(v is not None for v in row)], name, settings
            )
        else:
            seen = [v for column in group for v in table.elements(column) if v is not None]
            values = chosen(seen, name, settings)
        state[name] = (group, combine and len(group) > 1, values)
    return state, settings


def chosen(seen, name, settings):
    counts = Counter(seen)
    least = setting(settings, "freq_threshold", name, 0)
    kept = [value for value, count in counts.items() if count >= least]
    kept.sort(key=lambda value: (-counts[value], nulls_first(value)))
    most = setting(settings, "max_size", name, 0)
    return kept[: most - 2 - buckets(settings, name)] if most else kept


def nulls_first(value):
    row = value if isinstance(value, tuple) else (value,)
    return [(v is not None, v) if v is not None else (False,) for v in row]


def setting(settings, key, name, default):
    given = settings.get(key, default)
    return given.get(name, default) if isinstance(given, dict) else given


def buckets(settings, name):
    return setting(settings, "num_buckets", name, None) or 1


def transform(state, table):
    vocabularies, settings = state
    made, before = {}, 0
    for name, (group, combined, values) in vocabularies.items():
        count = buckets(settings, name)
        # In a single table the ids of a vocabulary begin behind those of the one before.
        offset = before if settings.get("single_table") else 0
        before += 1 + count + len(values)
        first = {value: 2 + count + place for place, value in enumerate(values)}

        def identify(value, offset=offset, first=first, count=count):
            row = value if isinstance(value, tuple) else (value,)
            if all(v is None for v in row):
                return offset + 1
            if value in first:
                return offset + first[value]
            return offset + 2 + (bucket(value, count) if count > 1 else 0)

        dtype = settings.get("dtype", "int64")
        if combined:
            rows = zip(*(table[column] for column in group), strict=True)
            made[name] = (dtype, [identify(row) for row in rows])
        else:
            for column in group:
                made[column] = (dtype, per_element(table, column, identify))
    return made


def bucket(value, count):
    if not isinstance(value, tuple):
        return hash_of(value) % count
    total = sum(hash_of(v, place) for place, v in enumerate(value) if v is not None)
    return hash_of((total + 2**63) % 2**64 - 2**63) % count


def facts(state):
    vocabularies, settings = state
    sizes = {n: 2 + buckets(settings, n) + len(v) for n, (_, _, v) in vocabularies.items()}
    whole = 1 + sum(size - 1 for size in sizes.values())
    made = {}
    for name, (group, combined, _) in vocabularies.items():
        size = whole if settings.get("single_table") else sizes[name]
        made |= {column: {"cardinality": size} for column in ([name] if combined else group)}
    return made
