"""Column expressions: a small closed set of verbs, and their interpreters."""

# Everything that the numpy interpreter needs, relative to the package `workflow`; exports copy it.
RUNTIME_FOLDERS = (
    "schema",
    "wire",
    "expressions/language",
    "expressions/program",
    "expressions/tables",
    "expressions/numpy",
)
