"""TL911: what tracelab does not know, where figures or other rules suffer from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from tracelab.base.intervals import measure
from tracelab.findings.candidates import Candidate
from tracelab.findings.candidates_about_trace import candidates_about_trace
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO, WARNING
from tracelab.findings.rule import Rule
from tracelab.model.kernel_kinds import Kind, copy_direction
from tracelab.model.lookup import match_names
from tracelab.model.loss_names import LossName, find_loss_names, listed_names

_MUCH_OF_A_DEVICE = 0.01  # of its busy time: from here on busy and idle time are wrong by more
_MOST_IN_TITLE = 3  # names
_MUCH_OF_COPIES = 0.1  # of the copy time: below it rules miss little


def find(context: Context) -> list[Candidate]:
    """Events, copies and waits that are counted as losses, where that matters."""
    names = find_loss_names(context.trace)
    return [
        *_categories(context, [x for x in names if x.loss == "unknown_categories"]),
        *_copies(
            context,
            "copies_without_direction",
            names,
            lambda name: copy_direction(name) == "",
            "the file does not say the direction of {share:.0f} % of the copy time, so TL102 and "
            "TL201 cannot judge it",
        ),
        *_copies(
            context,
            "unknown_memories",
            names,
            context.trace.loss_names.get("unknown_memories", {}).__contains__,
            "the file does not say what kind of memory {share:.0f} % of the copy time uses, so "
            "TL102 cannot judge it",
        ),
        *_waits(context, [x for x in names if x.loss == "unknown_waits"]),
    ]


def _categories(context: Context, names: Sequence[LossName]) -> list[Candidate]:
    """Events of categories that are not known, in the rows of a GPU."""
    on_gpu = [x for x in names if x.devices]
    if not on_gpu:
        return []
    count = sum(x.count for x in on_gpu)
    unknown_ns: Counter[int] = Counter()
    for of_name in context.trace.unknown_gpu_ns.values():
        unknown_ns.update(of_name)
    timeline = context.timeline
    is_much = any(
        length_ns > _MUCH_OF_A_DEVICE * measure(timeline.busy(timeline.select(device=device)))
        for device, length_ns in unknown_ns.items()
    )
    one, many = "1 event of an unknown category", f"{count:,} events of unknown categories"
    return candidates_about_trace(
        "unknown_categories",
        count,
        f"{one if count == 1 else many} on GPUs {_is(count)} in no figure: "
        f"{_some_names(on_gpu, count)}",
        severity=WARNING if is_much else INFO,
    )


def _copies(
    context: Context,
    loss: str,
    names: Sequence[LossName],
    is_such: Callable[[str], bool],
    sentence: str,
) -> list[Candidate]:
    """Copies of which too little is known to judge them, where they are much of the copy time."""
    timeline = context.timeline
    length_ns = timeline.end_ns - timeline.start_ns
    is_copy = timeline.kind == Kind.COPY
    unknown = is_copy & match_names(context.trace, timeline.event_id, is_such)
    copied_ns = int(length_ns[is_copy].sum())
    share = int(length_ns[unknown].sum()) / max(1, copied_ns)
    if share < _MUCH_OF_COPIES:
        return []
    listed = _some_names([x for x in names if x.loss == loss], context.losses.get(loss, 0))
    text = f"{sentence.format(share=100 * share)}: {listed}"
    return candidates_about_trace(loss, int(unknown.sum()), text, severity=WARNING)


def _waits(context: Context, names: Sequence[LossName]) -> list[Candidate]:
    """Waits of kinds that are not known: what they delayed has another reason, or none."""
    count = context.losses.get("unknown_waits", 0)
    waits = "1 wait of an unknown kind" if count == 1 else f"{count:,} waits of unknown kinds"
    return candidates_about_trace(
        "unknown_waits",
        count,
        f"{waits} {_is(count)} in no figure: {_some_names(names, count)}",
    )


def _some_names(names: Sequence[LossName], total: int) -> str:
    """The most frequent names, few enough for a title."""
    return listed_names([replace(x, devices=()) for x in names[:_MOST_IN_TITLE]], total)


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


RULE = Rule(
    id="TL911",
    name="unknown events",
    matters="Profilers change. Events that tracelab does not know are in no figure: a GPU may be "
    "busier than reported, a copy may lack its finding, a delay its reason.",
    decides="It reports events of unknown categories in the rows of a GPU (a warning from 1 % of "
    "its busy time), copies of unknown direction or memory from 10 % of the copy time, and waits "
    "of unknown kinds, each with the names in the file. Smaller losses are listed in the full "
    "report, on the page and in the JSON (`traces[].loss_names`).",
    fix="Update tracelab; if it is up to date, please open an issue with these names and the "
    "version of the profiler.",
    fix_short="Update tracelab; if it is up to date, open an issue with these names.",
    find=find,
    about="trace",
)
