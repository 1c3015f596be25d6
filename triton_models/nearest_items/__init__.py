"""The search for the nearest items in a FAISS index, a step of an ensemble."""
