"""HashedCross: the hashes of several values, each with its place, added up; or TensorFlow's own."""

import tensorflow as tf
from hash_bucket import hash_of


def fit(table, columns, settings):
    given = settings["num_buckets"]
    names = {"_X_".join(group): group for group in columns}
    cross = crossed_by_tensorflow if settings.get("hash") == "farmhash" else crossed
    return {
        name: (group, given[name] if isinstance(given, dict) else given, cross)
        for name, group in names.items()
    }


def transform(crosses, table):
    made = {}
    for name, (group, count, cross) in crosses.items():
        rows = zip(*(table[column] for column in group), strict=True)
        made[name] = ("int32", [of_row(row, count, cross) for row in rows])
    return made


def of_row(row, count, cross):
    """One id, or one for each element of the list among the values."""
    place = next((n for n, value in enumerate(row) if isinstance(value, list)), None)
    if place is None:
        return cross(row, count)
    return [cross((*row[:place], element, *row[place + 1 :]), count) for element in row[place]]


def crossed(row, count):
    hashes = (-1 if v is None else hash_of(v, place) for place, v in enumerate(row))
    total = (sum(hashes) + 2**63) % 2**64 - 2**63
    return total % count


def crossed_by_tensorflow(row, count):
    if None in row:
        return 0
    values = [[int(v) if isinstance(v, bool) else v] for v in row]
    made = tf.sparse.cross_hashed([tf.constant([value]) for value in values], count)
    return int(made.values[0])


def facts(crosses):
    return {name: {"cardinality": count} for name, (_, count, _) in crosses.items()}
