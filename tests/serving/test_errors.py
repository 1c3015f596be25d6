"""An error of a worker process reaches the process that waits for it, as in a process pool."""

import pickle

import pytest

from serving import errors
from serving.exchange import VersionsError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type)]


@pytest.mark.parametrize("kind", [k for k in KINDS if issubclass(k, errors.ClientError)])
def test_a_pickle_is_the_same_error(kind):
    error = kind("UNAVAILABLE", "Expected a server.")
    read = pickle.loads(pickle.dumps(error))  # noqa: S301 - what was written above
    assert (type(read), read.code, read.message) == (kind, error.code, error.message)


def test_a_pickle_names_the_versions_that_have_answered():
    error = VersionsError.of(["3", "2", "3"])
    read = pickle.loads(pickle.dumps(error))  # noqa: S301 - what was written above
    assert type(read) is VersionsError
    assert str(read) == str(error)
    assert "answers of the versions 3, 2." in str(read)
