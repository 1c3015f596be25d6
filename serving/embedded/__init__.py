"""A real Triton server on loopback, and the publication of models into any running server."""
