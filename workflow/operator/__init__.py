"""The base classes of operators, and their settings."""
