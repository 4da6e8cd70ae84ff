"""What all tests of recordings share."""

import pytest

from tracelab.record import recorder


@pytest.fixture(autouse=True)
def _planned_steps(monkeypatch):
    """Time as many steps as planned, and keep their time: else the machine's clock would decide."""
    monkeypatch.setattr(recorder, "_MIN_BLOCK_MS", 0.0)
    monkeypatch.setattr(recorder, "_WARMS_UP", float("inf"))
    monkeypatch.setattr(recorder, "_NOT_THE_SAME", 0.0)
