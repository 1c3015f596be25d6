"""Column expressions: a small closed vocabulary of verbs, and what evaluates it."""
