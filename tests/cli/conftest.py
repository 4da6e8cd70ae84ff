"""What the commands' tests share."""

import pytest


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    """Commands analyze in this process, which asks once about each bundled trace.

    What they read themselves, in how many processes, is shown by commands in processes of their
    own, by copies, and by the tests of `many_files`.
    """
    monkeypatch.setattr("tracelab.cli.many_files.processors", lambda: 1)
