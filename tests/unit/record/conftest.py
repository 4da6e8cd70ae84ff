"""What all tests of recordings share."""

import pytest

from tracelab.record import recorder


@pytest.fixture(autouse=True)
def _planned_steps(monkeypatch):
    """Time as many steps as planned: on a machine with a GPU its clock would decide."""
    monkeypatch.setattr(recorder, "_LEAST_BLOCK_MS", 0.0)
