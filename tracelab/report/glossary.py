"""The words that reports use, with their meanings, from ``glossary.toml``.

The text report takes the meanings next to its figures from here, ``tracelab explain`` and
``tracelab/docs/glossary.md`` take all of it.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from types import MappingProxyType

from tracelab.base.arrays import OneLine, dataclass
from tracelab.model.constraints import REASONS
from tracelab.model.losses import LOSSES


@dataclass(frozen=True, slots=True, repr=False)
class Term(OneLine):
    """A word and its meaning.

    Example: ``Term("edge", "before the GPU's first activity in the file, or after its last",
    shown="trace boundary")``.

    Attributes:
        key: the word, as in the JSON.
        meaning: a phrase, which may stand in a table.
        detail: sentences that say more; "" where there is no more to say.
        shown: what the text report calls it; "" where that is the key.
    """

    key: str
    meaning: str
    detail: str = ""
    shown: str = ""

    @property
    def name(self) -> str:
        """The name in the text report."""
        return self.shown or self.key


@dataclass(frozen=True, slots=True, repr=False)
class Group(OneLine):
    """Words of one sort.

    Example: ``Group("causes", "Causes of idle time", "an idle cause", "Why a GPU was idle.",
    (Term("edge", ...), ...))``.

    Attributes:
        key: the name by which it is requested.
        title: its heading.
        one: what each of its words is.
        about: where the words are used.
        terms: the words, in the order in which they are listed.
    """

    key: str
    title: str
    one: str
    about: str
    terms: tuple[Term, ...]

    @property
    def meanings(self) -> Mapping[str, str]:
        """The meaning of each word."""
        return MappingProxyType({term.key: term.meaning for term in self.terms})

    @property
    def names(self) -> Mapping[str, str]:
        """The name of each word in the text report."""
        return MappingProxyType({term.key: term.name for term in self.terms})


def _group_of(key: str) -> Group:
    """Make a group from its entry in the file."""
    entry = _ENTRIES[key]
    terms = {**_ENTRIES[entry["begins_with"]]["terms"]} if "begins_with" in entry else {}
    terms |= _OF_CODE.get(key) or entry["terms"]
    texts = (entry["title"], entry["one"], " ".join(entry["about"].split()))
    return Group(key, *texts, tuple(_term_of(*item) for item in terms.items()))


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
_BY_KEY = {group.key: group for group in GROUPS}
FAMILIES = _BY_KEY["rules"]
TERMS = _BY_KEY["terms"]
CAUSES = _BY_KEY["causes"]
REASONS_UNKNOWN = _BY_KEY["reasons"]
BLOCKERS = _BY_KEY["blockers"]
FINDING_CAUSES = _BY_KEY["finding causes"]
ORIGINS = _BY_KEY["origins"]
LATENESS = _BY_KEY["lateness"]
PIPELINE = _BY_KEY["pipeline bubble"]
KINDS = _BY_KEY["kinds"]
BLOCKING_KINDS = _BY_KEY["blocking calls"]
PATH_KINDS = _BY_KEY["path"]
CONSTRAINTS = _BY_KEY["constraints"]
NODE_WAITS = _BY_KEY["graph_idle"]
EDGE_KINDS = _BY_KEY["edges"]
PHASES = _BY_KEY["phases"]
FINDING_FIELDS = _BY_KEY["finding"]
PREDICTION_FIELDS = _BY_KEY["prediction"]
SEVERITIES = _BY_KEY["severities"]
LOSS_KINDS = _BY_KEY["losses"]


def find_terms(word: str) -> list[tuple[Group, Term]]:
    """Find a word in every group that has it; capitals and separators do not matter.

    >>> [group.key for group, _ in find_terms("trace boundary")]
    ['causes']
    >>> [term.key for _, term in find_terms("caused_idle_ns")]
    ['caused idle']

    A word that is no term stands for the terms that contain it.

    >>> [term.key for _, term in find_terms("steady")]
    ['steady steps', 'steady window', 'steady step']
    """
    wanted = normalized(word)
    terms = [(group, term) for group in GROUPS for term in group.terms]
    exact = [pair for pair in terms if wanted in _names(pair[1])]
    return exact or [
        pair for pair in terms if any(f" {wanted} " in f" {name} " for name in _names(pair[1]))
    ]


def _names(term: Term) -> tuple[str, str]:
    """List the texts by which a term is found."""
    return normalized(term.key), normalized(term.name)


def find_group(word: str) -> Group | None:
    """Find the group of that key or title; None without one.

    >>> find_group("Causes").title
    'Causes of idle time'
    """
    wanted = normalized(word)
    return next(
        (group for group in GROUPS if wanted in (normalized(group.key), normalized(group.title))),
        None,
    )


def nearest(word: str, others: Iterable[str] = ()) -> list[str]:
    """List at most three known words, or others, that are most like an unknown one.

    >>> nearest("exposd")[0]
    'exposed'
    """
    names = [group.key for group in GROUPS]
    names += [name for group in GROUPS for term in group.terms for name in (term.key, term.name)]
    known = {normalized(name): name for name in (*others, *names)}
    return [known[close] for close in difflib.get_close_matches(normalized(word), known, n=3)]


def normalized(word: str) -> str:
    """Remove capitals, separators and the unit from a word, which do not tell words apart.

    >>> normalized("Caused-Idle_ns")
    'caused idle'
    """
    return re.sub(r"[\s_-]+", " ", word).strip().casefold().removesuffix(" ns")
