"""Every remedy: the records of `remedies.toml`; the first of two for one event counts."""

from __future__ import annotations

from pathlib import Path

from tracelab.base.arrays import Registry
from tracelab.findings.remedies.load import load_remedies
from tracelab.findings.remedy import Remedy

_FILE = Path(__file__).parents[1] / "remedies.toml"

REMEDIES = Registry[Remedy](load_remedies(_FILE.read_text(encoding="utf-8"), _FILE.name))
