"""The proof of an export: golden rows answered from the written files."""
