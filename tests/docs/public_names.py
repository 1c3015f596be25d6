"""The public names of the packages."""

from importlib.util import find_spec

# A name that needs a package of which the tests do without.
FRAMEWORKS = {"TorchLoader": "torch", "JaxLoader": "jax"}


def public_names(module):
    """Each public object with its module, as Python itself imports them."""
    for name in module.__all__:
        framework = FRAMEWORKS.get(name)
        if framework and find_spec(framework) is None:
            continue
        value = getattr(module, name)
        if hasattr(value, "__all__"):
            yield from public_names(value)
        else:
            yield module.__name__, name, value
