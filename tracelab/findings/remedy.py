r"""A remedy: what to write instead of one recognizable pitfall, and how to add one.

A rule says *that* something costs time; a remedy says *what to write instead*. It is recognized by
host events: Python frames, operators, annotations or calls. What happens inside them is its own:
blocking calls, launches, idle time. To add one, add a record to `remedies.toml`:

    [[remedy]]
    id = "optimizer-loop"
    name = "an optimizer that updates one parameter at a time"
    title = "The optimizer updates one parameter at a time"
    shows = "`_single_tensor_adam` in `Optimizer.step#`, with a set of kernels for each parameter."
    not_when = "The optimizer must be differentiable."
    source = "PyTorch documentation: torch.optim"
    url = "https://docs.pytorch.org/docs/stable/optim.html"
    rules = ["TL301"]
    frames = 'torch/optim/\w+\.py\(\d+\): _single_tensor_\w+$'
    occurs = [{ is = "launches", least = 5 }]
    edit = "fuse:{place}"
    fixes = [{ text = "Pass `fused=True` to the optimizer.", since = "2.0" }]

``occurs`` names recognizers: `remedies/recognizers.py` has them. Test it on a trace with the
pitfall and on one without it, in ``tests/unit/findings/remedies/``. A program makes one with
`Remedy(id="optimizer-loop", ...)`, where ``occurs`` is a function.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from tracelab.base.arrays import Record
from tracelab.base.intervals import Int64Array
from tracelab.findings.finding import MAX_SHORT_LETTERS
from tracelab.findings.places import PLACE
from tracelab.model.graph import Graph
from tracelab.model.trace import ReadArguments
from tracelab.simulate.sites import REMEDY

FIRST_USE = "TL305"  # the rule about what a program does once

_VERSION = re.compile(r"(\d+)\.(\d+)")


class Instead(Record):
    """A fix: what to write instead.

    Attributes:
        text: sentences, with the call or the flag.
        since: the first PyTorch that has it, such as "2.3"; "" where every supported one does.
        short: as of `Finding.fix_short`; "" where the text is short enough.
    """

    text: str
    since: str = ""
    short: str = ""

    @property
    def summary(self) -> str:
        """The short form; "" if the text is long and has no short form."""
        return short_form(self.text, self.short)

    @property
    def versioned(self) -> Instead:
        """The same with the version that it needs."""
        if not self.since:
            return self
        needs = f" This needs PyTorch {self.since}."
        return replace(self, text=self.text + needs, short=self.summary and self.summary + needs)


NO_FIX = Instead("")


class Remedy(Record, kw_only=True):
    """The fix of one pitfall, and how a trace shows it.

    Attributes:
        id: what reports call it, in words with hyphens; it never changes.
        name: the pitfall, in a few words.
        title: the title of its finding, without figures; the rule's own where it is "".
        shows: how a trace shows it.
        not_when: when it does not apply.
        fixes: what to write instead, the newest API first.
        source: where this is documented, in words.
        url: a link to it.
        rules: ids of the rules whose findings it refines.
        edit: the change that a replay makes for it, such as "remove:{place}"; None where nobody
            knows what the fix saves. The place is all that was recognized of it, or with
            `by_call_site` that of the finding.
        frames: a regular expression, searched in the names of Python functions; "" for none.
        operators: the same for names of operators and annotations. With both, operators inside such
            functions.
        occurs: of the events that match (int64[k], event ids) those that really are the pitfall;
            without any pattern it finds them by itself.
        by_arguments: adds to these events, or takes away, by the "args" of some.
        by_call_site: whether each place is to be changed by itself, rather than all at once.
        is_general: whether it counts only where no other remedy is recognized.
        is_whole: whether all inside goes with it, whatever other remedy is recognized there.
        needs_same_sizes: whether it helps only where the sizes that the host waits for are the same
            in every step; where the trace does not show that, what it saves is a bound.
        is_bound: whether no trace shows that it can be done, so that what it saves is a bound.
    """

    id: str
    name: str
    title: str = ""
    shows: str
    not_when: str
    fixes: tuple[Instead, ...]
    source: str
    url: str
    rules: tuple[str, ...]
    edit: str | None = None
    frames: str = ""
    operators: str = ""
    occurs: Callable[[Graph, Int64Array], Int64Array] | None = None
    by_arguments: Callable[[Graph, Int64Array, ReadArguments], Int64Array] | None = None
    by_call_site: bool = False
    is_general: bool = False
    is_whole: bool = False
    needs_same_sizes: bool = False
    is_bound: bool = False

    def fix_for(self, torch: str | None) -> Instead | None:
        """Return the fix for the PyTorch that wrote a trace, if known; None where it has none."""
        for fix in self.fixes:
            if torch is None:
                return fix.versioned
            if is_available(fix.since, torch):
                return fix
        return None

    @property
    def edit_of_finding(self) -> str | None:
        """The edit of its finding; with {place} where that is the finding's own."""
        if self.edit is None or self.by_call_site:
            return self.edit
        return self.edit.replace(PLACE, f"{REMEDY}{self.id}")

    @property
    def is_first_use(self) -> bool:
        """True for what a program does once: loading, planning, compiling."""
        return self.rules == (FIRST_USE,)

    @property
    def documented(self) -> str:
        """The source, in words and with a link."""
        return f"{self.source} ({self.url})"


def short_form(text: str, short: str) -> str:
    """Return the short form of a fix, else its text where that is short enough, else ""."""
    return short or (text if len(text) <= MAX_SHORT_LETTERS else "")


def is_available(since: str, torch: str) -> bool:
    """Tell whether a version of PyTorch has what came with another one.

    >>> is_available("2.3", "2.11.0+cu130"), is_available("2.12", "2.11.0"), is_available("", "1.8")
    (True, False, True)
    """
    first, own = _VERSION.match(since), _VERSION.match(torch)
    if first is None or own is None:
        return True
    return tuple(map(int, own.groups())) >= tuple(map(int, first.groups()))
