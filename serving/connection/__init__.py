"""Connections to a server: tensors as bytes, gRPC, HTTP and shared memory."""
