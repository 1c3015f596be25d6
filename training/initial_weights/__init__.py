"""Weights with which a model begins: pre-trained vectors, and those of an earlier model."""
