"""Saved workflows: writing, reading and validating their files."""
