'''A rule, and how to write one.

A rule is a function from the `Context` of a window to candidates, and the texts that explain it.
It says how much time is lost where; the attribution says how much of that no earlier rule has. To
add one:

1. Write a function and a `Rule`, such as the ones below. A rule from outside the package may be in
   any module; its id is a prefix of its own, not TL, and a number:

       """TL208: memory that is filled again and again."""

       import numpy as np

       from tracelab.findings.candidates import Candidate, grouped, where
       from tracelab.findings.context import Context
       from tracelab.findings.rule import Rule
       from tracelab.model.wording import called
       from tracelab.model.kernel_kinds import Kind


       def find(context: Context) -> list[Candidate]:
           """Memsets, by call site."""
           rows = np.flatnonzero(context.timeline.kind == Kind.MEMSET)
           call_sites = context.call_sites(context.timeline.launch_id[rows])
           return [
               Candidate(
                   title=f"{called(call_site, 'memset')} fills memory",
                   cause="memset",
                   where=where(call_site, count=len(group)),
                   lost=context.time_of(rows[group]),
               )
               for call_site, group in grouped(call_sites).items()
           ]


       RULE = Rule(
           id="TL208",
           name="memory that is filled",
           matters="The GPU computes nothing while it fills memory.",
           decides="It sums the time of all memsets.",
           fix="Replace `torch.zeros` by `torch.empty` where all is overwritten.",
           find=find,
       )

2. A rule of the package is in a module of ``rules/``, and its texts are in `rules.toml`: write
   ``load_rule("TL208", find)``, and make each candidate of a `Case`. Add it to
   `tracelab.findings.registry.RULES`. The earlier a rule stands there, the earlier its candidates
   are attributed their time.
3. Test it on a trace with its defect and on the same trace without it, in
   ``tests/unit/findings/rules/test_tl208_memset.py``.
'''

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from msgspec import field

from tracelab.base.arrays import Record
from tracelab.findings.candidates import Candidate
from tracelab.findings.context import Context
from tracelab.findings.finding import Where
from tracelab.findings.remedy import short_form

_TEXTS = tomllib.loads(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))


class Case(Record, kw_only=True):
    """A case that a rule tells apart, in words; {names} in them stand for what was measured.

    Attributes:
        cause, title, fix: as in `Candidate`.
        short: of the fix; "" if that is short enough.
        edit: as in `Candidate`; {place} in it stays.
        counted: the noun of {counted} in the title, singular and plural.
    """

    cause: str
    title: str = ""
    fix: str = ""
    short: str = ""
    edit: str | None = None
    counted: tuple[str, str] = ("", "")

    def filled(self, **values: object) -> Case:
        """The same with measured values in its texts; a fix that is short is its own short form."""
        title, fix, short = (text.format(**values) for text in (self.title, self.fix, self.short))
        return replace(self, title=title, fix=fix, short=short_form(fix, short))

    def candidate(
        self, where: Where, values: Mapping[str, object] | None = None, /, **measured: Any
    ) -> Candidate:
        """Make a candidate of this case: what its texts' names stand for, and further fields."""
        said = self.filled(**values or {})
        texts = {"title": said.title, "cause": said.cause, "fix": said.fix, "fix_short": said.short}
        return Candidate(where=where, **{**texts, "edit": said.edit, **measured})


class Rule(Record, kw_only=True):
    """A rule: what it says of itself, and the function that applies it.

    Attributes:
        id: a prefix and a number, which never change: reports and baselines cite it.
        name: what it finds, in a few words.
        matters: why that costs time.
        decides: how the rule decides, and when it stays silent.
        find: the candidates, in any order.
        fix: what to do, where that is the same everywhere.
        fix_short: as of `Finding`.
        before, after: a few lines of PyTorch, or "".
        about: the program, or what the trace itself lacks.
        cases: by cause, or by names of its own.
    """

    id: str
    name: str
    matters: str
    decides: str
    find: Callable[[Context], list[Candidate]]
    fix: str = ""
    fix_short: str = ""
    before: str = ""
    after: str = ""
    about: Literal["program", "trace"] = "program"
    cases: Mapping[str, Case] = field(default_factory=dict)


def load_rule(rule_id: str, find: Callable[[Context], list[Candidate]]) -> Rule:
    """Make the rule of a function from its texts in `rules.toml`."""
    texts = dict(_TEXTS[rule_id])
    title = texts.pop("title", "")
    cases = {
        name: Case(**{"cause": name, "title": title, **case})
        for name, case in texts.pop("cases", {}).items()
    }
    return Rule(id=rule_id, find=find, cases=cases, **texts)
