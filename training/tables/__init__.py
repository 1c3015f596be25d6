"""Embedding tables: their initial values, lookups and combination, whole or divided among workers."""
