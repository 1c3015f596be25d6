"""The public names of the packages."""


def public_names(module):
    """Each public object with its module, as Python itself imports them."""
    for name in module.__all__:
        value = getattr(module, name)
        if hasattr(value, "__all__"):
            yield from public_names(value)
        else:
            yield module.__name__, name, value
