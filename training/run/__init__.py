"""Parts of `train` around `model.fit`: checks before it, watching during it."""
