"""What a page knows when a program on this machine serves it together with its traces."""

from __future__ import annotations

from dataclasses import dataclass

from tracelab.arrays import OneLine


@dataclass(frozen=True, slots=True, repr=False)
class ServedTrace(OneLine):
    """A trace that is served beside the page.

    Example row: ``ServedTrace(name="rank0.json.gz", rank=0, url="/traces/0?token=...")``
    """

    name: str
    rank: int
    url: str


@dataclass(frozen=True, slots=True, repr=False)
class Served(OneLine):
    """What is served, and the secret that a request for it needs.

    Example: ``Served(token="3f...", traces=(ServedTrace("a.json", 0, "/traces/0"),))``
    """

    token: str
    traces: tuple[ServedTrace, ...]
