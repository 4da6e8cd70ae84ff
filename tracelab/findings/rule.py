'''A rule, and how to write one.

A rule is one file with one function, which looks at the `Context` of a window and returns
candidates. It says how much time is lost where; how much of that no earlier rule has, and how
severe that is, the attribution says. To add one:

1. Write ``rules/tlNNN_what.py``, such as the one below. A rule from outside the package may be in
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

2. Add the line ``tl208_memset.RULE`` to `tracelab.findings.registry.RULES`. The earlier a rule
   stands there, the earlier its candidates are attributed their time.
3. Test it on a trace with its defect and on the same trace without it, in
   ``tests/unit/findings/rules/test_tl208_memset.py``.
'''

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tracelab.base.arrays import OneLine, dataclass
from tracelab.findings.candidates import Candidate
from tracelab.findings.context import Context


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Rule(OneLine):
    """A rule: what it says of itself, and the function that applies it.

    Attributes:
        id: a prefix and a number, which never change: reports and baselines cite it.
        name: what it finds, in a few words.
        matters: why that costs time.
        decides: how the rule decides, and when it stays silent.
        find: the candidates, in any order.
        fix: what to do, where that is the same everywhere.
        fix_short: as of `Finding`; "" where `fix` is short enough.
        before, after: the defect and its fix as a few lines of PyTorch; "" without an example.
        about: the program, or the trace: what the file itself lacks.
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
