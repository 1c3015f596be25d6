"""Verbs, their types, and expressions built from them."""
