"""What the commands' tests share."""

import pytest

from tests.bundled_traces import analyze_once


@pytest.fixture(autouse=True)
def known_analyses(monkeypatch):
    """Commands that run in this process analyze each bundled trace once with the same options.

    What they read themselves, in how many processes, is shown by commands in processes of their
    own, by copies, and by the tests of `many_files`.
    """
    monkeypatch.setattr("tracelab.reports.analyze_source", analyze_once)
    monkeypatch.setattr("tracelab.cli.many_files.processors", lambda: 1)
