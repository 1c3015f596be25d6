"""Parts of `train` around `model.fit`: checks before it, monitoring during it."""
