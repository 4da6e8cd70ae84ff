"""Every remedy: `remedies.toml` and what recognizes them; of two for one event the first counts."""

from __future__ import annotations

from pathlib import Path

from tracelab.findings.remedies.load import load_remedies
from tracelab.findings.remedy import Remedy

_FILE = Path(__file__).with_name("remedies.toml")

REMEDIES: tuple[Remedy, ...] = load_remedies(_FILE.read_text(encoding="utf-8"), _FILE.name)
