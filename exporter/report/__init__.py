"""The report of an export, as text, page and drawing."""
