"""Column expressions: a small closed vocabulary of verbs, and what evaluates it."""

# What the numpy interpreter needs, relative to the package `workflow`: an export copies these.
RUNTIME_FILES = (
    "dtypes.py",
    "schema.py",
    "packing.py",
    "wire.py",
    "alike.py",
    "expressions/__init__.py",
    "expressions/arrays.py",
    "expressions/column.py",
    "expressions/cuckoo.py",
    "expressions/derived.py",
    "expressions/hashing.py",
    "expressions/lanes.py",
    "expressions/lookup.py",
    "expressions/numpy.py",
    "expressions/numpy_elementwise.py",
    "expressions/numpy_lists.py",
    "expressions/numpy_tables.py",
    "expressions/numpy_verbs.py",
    "expressions/program.py",
    "expressions/program_json.py",
    "expressions/text_table.py",
    "expressions/types.py",
    "expressions/verbs.py",
)
