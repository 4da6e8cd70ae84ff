"""What stands in the cells and sentences of the text report: times, shares, names, plain words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from tracelab.model.constraints import REASONS
from tracelab.render.words import share_text, time_unit

PART = " · "  # between the parts of a cell that may stand on lines of their own

CAUSE_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "host_blocked": "the host sat in a blocking call instead of launching",
        "input": "the host waited for the data loader",
        "host_busy": "the CPU was busy with Python, operators or launches",
        "dependency": "the next activity was launched and waited for another GPU",
        "launch": "launched, not yet started, and not waiting for another GPU",
        "graph": "between two nodes of one CUDA graph",
        "edge": "before the GPU's first activity in the file, or after its last",
        "profiler": "the host was in the profiler's own code",
        "unknown": "the file does not say",
    }
)
REASON_MEANINGS: Mapping[str, str] = MappingProxyType(
    {reason.name.lower(): text for reason, text in REASONS.items()}
)
PATH_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "compute": "kernels",
        "comm": "communication kernels",
        "copy": "memory copies",
        "memset": "memory sets",
        "launch": "from the launch call to the start of the activity",
        "queue": "from the end of one activity to the start of the next, already launched",
        "host": "on the host, not waiting for the GPU as far as is known",
        "sync": "in a blocking call whose work was done or is not known, or stalled",
        "unknown": "the file does not say what was waited for",
    }
)
CONSTRAINT_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "stream": "the end of the activity before it in its stream",
        "dependent_launch": "a sign of that one: programmatic dependent launch, or a graph",
        "event": "an event of another stream",
        "peer_copy": "a copy between GPUs in a default stream",
        "launch": "the host's launch",
        "queue": "work of another stream in the same hardware queue or copy engine",
        "no_free_sm": "a free multiprocessor: kernels of other streams had all of them",
        "unknown": "the file does not say",
    }
)


def time_text(time_ns: int) -> str:
    """A length of time in the unit that suits it, with two decimals.

    >>> time_text(812), time_text(1_640), time_text(16_682_383), time_text(123_400_000_000)
    ('812 ns', '1.64 µs', '16.68 ms', '123.4 s')
    """
    if time_ns == 0:
        return "0"
    unit, unit_ns = time_unit(time_ns)
    if time_ns >= 999.95 * unit_ns:  # it would be rounded to 1000.0
        unit, unit_ns = time_unit(1000 * unit_ns)
    if unit_ns == 1:
        return f"{time_ns} {unit}"
    value = time_ns / unit_ns
    return f"{value:.2f} {unit}" if value < 99.995 else f"{value:,.1f} {unit}"


def percent_text(part: int, whole: int) -> str:
    """A share with one decimal; only nothing is 0 % and only the whole is 100 %.

    >>> percent_text(988, 1000), percent_text(1, 10_000), percent_text(1, 0)
    ('98.8 %', '<0.1 %', '-')
    """
    return share_text(part, whole, decimals=1)


def largest(times_ns: Mapping[str, int]) -> list[tuple[str, int]]:
    """What takes any time, the largest first.

    >>> largest({"launch": 20, "graph": 0, "input": 70})
    [('input', 70), ('launch', 20)]
    """
    return sorted(
        ((name, time_ns) for name, time_ns in times_ns.items() if time_ns),
        key=lambda pair: -pair[1],
    )


def meaning_of(meanings: Mapping[str, str], key: str) -> str:
    """What a cause, a reason or a kind means; itself where a newer version made the report.

    >>> meaning_of(PATH_MEANINGS, "memset"), meaning_of(PATH_MEANINGS, "magic")
    ('memory sets', 'magic')
    """
    return meanings.get(key) or key


def counted(count: int, one: str, many: str) -> str:
    """A number with its word.

    >>> counted(1, "step", "steps"), counted(1234, "step", "steps")
    ('1 step', '1,234 steps')
    """
    return f"{count:,} {one if count == 1 else many}"


def listed(words: Iterable[str], last: str = "and") -> str:
    """Words as a sentence has them.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *before, end = words
    return f"{', '.join(before)} {last} {end}" if before else end
