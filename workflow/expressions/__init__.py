"""Column expressions: a small closed vocabulary of verbs, and what evaluates it."""

# All that the numpy interpreter needs, relative to the package `workflow`: an export copies it.
RUNTIME_FOLDERS = (
    "schema",
    "wire",
    "expressions/language",
    "expressions/program",
    "expressions/tables",
    "expressions/numpy",
)
