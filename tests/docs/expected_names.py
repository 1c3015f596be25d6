"""Comparison of the names in a file with those that it has to have."""


def expect_names(place, found, wanted):
    """Refuse a file that lacks a name, or has one that is none, and say which.

    Args:
        place: the file to edit, and where in it.
        found: the names in it; a list has to have the order of the others.
        wanted: the names that there are.
    """
    wrong = [f"no {name}" for name in wanted if name not in found]
    wrong += [f"{name}, which is none of them" for name in found if name not in wanted]
    if isinstance(found, list) and not wrong and found != list(wanted):
        wrong = [f"another order than {', '.join(wanted)}"]
    assert not wrong, f"Expected all names in {place}. Received: {'; '.join(wrong)}. Edit it."
