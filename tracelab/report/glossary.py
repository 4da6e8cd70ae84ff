"""The words of reports, with their meanings, from ``glossary.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

from tracelab.base.arrays import Record
from tracelab.model.binding import REASONS
from tracelab.model.losses import LOSSES


class Term(Record):
    """A word and its meaning.

    Attributes:
        meaning: a phrase.
        detail: further sentences.
        shown: its form in the text report; "" for the key.
    """

    key: str
    meaning: str
    detail: str = ""
    shown: str = ""

    @property
    def name(self) -> str:
        """The name in the text report."""
        return self.shown or self.key


class Group(Record):
    """Words of one sort.

    Attributes:
        one: the sort of each word.
        about: where the words are used.
        parts: of the page, with these words.
    """

    key: str
    title: str
    one: str
    about: str
    terms: tuple[Term, ...]
    parts: tuple[str, ...] = ()

    @property
    def meanings(self) -> Mapping[str, str]:
        """Meanings by key."""
        return MappingProxyType({term.key: term.meaning for term in self.terms})

    @property
    def names(self) -> Mapping[str, str]:
        """Names in the text report by key."""
        return MappingProxyType({term.key: term.name for term in self.terms})

    def meaning_of(self, key: str) -> str:
        """Return the meaning of a word, by default the word."""
        return self.meanings.get(key) or key

    def name_of(self, key: str) -> str:
        """Return the name in the text report, by default the word."""
        return self.names.get(key) or key


def _group_of(key: str) -> Group:
    entry = _ENTRIES[key]
    terms = {**_ENTRIES[entry["begins_with"]]["terms"]} if "begins_with" in entry else {}
    terms |= _OF_CODE.get(key) or entry["terms"]
    texts = (entry["title"], entry["one"], " ".join(entry["about"].split()))
    parts = tuple(entry.get("parts", ()))
    return Group(key, *texts, tuple(_term_of(*item) for item in terms.items()), parts)


def _term_of(key: str, entry: str | Mapping[str, str]) -> Term:
    texts = {"meaning": entry} if isinstance(entry, str) else entry
    return Term(key, **{name: " ".join(text.split()) for name, text in texts.items()})


_ENTRIES = tomllib.loads(
    files("tracelab.report").joinpath("glossary.toml").read_text(encoding="utf-8")
)
_OF_CODE: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "reasons": {reason.name.lower(): text for reason, text in REASONS.items()},
        "losses": {name: loss.text for name, loss in LOSSES.items()},
    }
)
GROUPS = tuple(map(_group_of, _ENTRIES))
BY_KEY = {group.key: group for group in GROUPS}
FAMILIES = BY_KEY["rules"]
TERMS = BY_KEY["terms"]
CAUSES = BY_KEY["causes"]
REASONS_UNKNOWN = BY_KEY["reasons"]
BLOCKERS = BY_KEY["blockers"]
FINDING_CAUSES = BY_KEY["finding causes"]
ORIGINS = BY_KEY["origins"]
LATENESS = BY_KEY["lateness"]
PIPELINE = BY_KEY["pipeline bubble"]
KINDS = BY_KEY["kinds"]
BLOCKING_KINDS = BY_KEY["blocking calls"]
PATH_KINDS = BY_KEY["path"]
CONSTRAINTS = BY_KEY["constraints"]
PHASES = BY_KEY["phases"]
