"""For tests of the reader: a folder that the examples of a property share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A folder for the examples of a property, which come too often for a folder each."""
    return tmp_path_factory.mktemp("chrome")
