"""HashBucket: the documented hash, in whole numbers of Python.

Source: the docstring of workflow/expressions/language/hashing.py. "farmhash" is TensorFlow's own.
"""

import tensorflow as tf
from tables import per_element

WORD = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
BASE = 0xD1342543DE82EF95


def finalised(bits):
    """The finaliser of SplitMix64, variant 13."""
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & WORD
    return bits ^ (bits >> 31)


def hash_of(value, seed=0):
    """The hash of a whole number, a boolean or a text."""
    if isinstance(value, str):
        data = value.encode()
        value = len(data) + sum(b * pow(BASE, i + 1, 2**64) for i, b in enumerate(data))
    offset = finalised((seed + 1) * GOLDEN & WORD)
    return finalised(int(value) + offset & WORD) >> 1


def fit(table, columns, settings):
    given, farmhash = settings["num_buckets"], settings.get("hash") == "farmhash"
    of = {name: given[name] if isinstance(given, dict) else given for name in columns}
    return {name: (count, farmhash) for name, count in of.items()}


def transform(buckets, table):
    made = {}
    for name, (count, farmhash) in buckets.items():

        def bucket(value, count=count, farmhash=farmhash):
            if value is None:
                return 0
            if farmhash:
                return int(tf.strings.to_hash_bucket_fast(str(value), count))
            return hash_of(value) % count

        made[name] = ("int32", per_element(table, name, bucket))
    return made


def facts(buckets):
    return {name: {"cardinality": count} for name, (count, _) in buckets.items()}
