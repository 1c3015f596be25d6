"""Watching of a served model: its metrics, and its inputs compared with the training."""
