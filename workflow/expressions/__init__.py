"""Column expressions: a small closed vocabulary of verbs, and what evaluates it."""

# What the numpy interpreter needs, relative to the package `workflow`: an export copies these.
RUNTIME_FILES = (
    "schema.py",
    "wire.py",
    "expressions/__init__.py",
    "expressions/arrays.py",
    "expressions/column.py",
    "expressions/cuckoo.py",
    "expressions/lookup.py",
    "expressions/numpy.py",
    "expressions/numpy_verbs.py",
    "expressions/program.py",
    "expressions/program_json.py",
    "expressions/verbs.py",
)
