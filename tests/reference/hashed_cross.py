"""HashedCross: the hashes of several values, each with its place, added up."""

from hash_bucket import hash_of


def fit(table, columns, settings):
    given = settings["num_buckets"]
    names = {"_X_".join(group): group for group in columns}
    return {n: (g, given[n] if isinstance(given, dict) else given) for n, g in names.items()}


def transform(crosses, table):
    made = {}
    for name, (group, count) in crosses.items():
        rows = zip(*(table[column] for column in group), strict=True)
        made[name] = ("int32", [crossed(row, count) for row in rows])
    return made


def crossed(row, count):
    hashes = (-1 if v is None else hash_of(v, place) for place, v in enumerate(row))
    total = (sum(hashes) + 2**63) % 2**64 - 2**63
    return total % count


def facts(crosses):
    return {name: {"cardinality": count} for name, (_, count) in crosses.items()}
