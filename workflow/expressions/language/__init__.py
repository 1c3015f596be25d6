"""Verbs, their types, and expressions made of them."""
