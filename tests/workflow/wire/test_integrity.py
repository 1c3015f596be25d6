"""A version folder whose manifest is none is refused by one error, whatever is in it."""

import pytest

from workflow.wire.integrity import IntegrityError, expect_exported

CONFIG = {"parameters": {"published": {"string_value": "m"}}}


@pytest.mark.parametrize(
    "text",
    ["null", "[]", "{}", '{"files": []}', '{"files": {}}', '{"models": {}}', '{"files": null}'],
)
def test_another_document_is_refused(text, tmp_path):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(IntegrityError, match=r"manifest\.json is not what the export wrote"):
        expect_exported(tmp_path, CONFIG)


def test_a_name_that_is_no_path_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text('{"files": {"a\\u0000": ""}, "generation": ""}')
    with pytest.raises(IntegrityError, match="which was exported"):
        expect_exported(tmp_path, CONFIG)
