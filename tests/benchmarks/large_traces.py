"""Build a large trace from a small real one: ``python tests/benchmarks/large_traces.py``.

The events are repeated in the profiler's own formatting, byte for byte but for what must differ
from one run of the same program to the next: times, the numbers of steps, and every id that links
two events.
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Two kinds that large traces come in: mostly Python frames, and mostly operators and kernels.
STACKS = ROOT / "traces/train_step_clean.pt.trace.json.gz"
PLAIN = ROOT / "traces/fsdp_prefetch_rank0.pt.trace.json.gz"

_ARRAY = re.compile(rb'"traceEvents": \[\n  \{(.*)\n  \]', re.DOTALL)
_BETWEEN = b",\n  {"
_REPEATED = (b'"ph": "X"', b'"ph": "s"', b'"ph": "f"')
_ONCE = (b'"cat": "Trace"',)
_NUMBER = re.compile(
    rb'("ts": )([0-9]+\.[0-9]{3})'
    rb'|("(?:correlation|External id|Ev Idx|id|Python id|Python parent id|Sequence number'
    rb'|wait_on_cuda_event_record_corr_id)": )([0-9]+)|(ProfilerStep#)([0-9]+)'
)
_SPAN = re.compile(rb'"ts": ([0-9]+\.[0-9]{3}), "dur": ([0-9]+\.[0-9]{3})')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--trace", type=Path, default=PLAIN)
    parser.add_argument("--megabytes", type=float, default=500)
    arguments = parser.parse_args()
    repeat(arguments.trace, arguments.megabytes * 1e6, arguments.output)
    print(f"{arguments.output}: {arguments.output.stat().st_size / 1e6:.0f} MB")


def repeat(trace: Path, size: float, output: Path) -> None:
    """Write a trace of about this many bytes: the given one again and again, later each time."""
    text = gzip.decompress(trace.read_bytes())
    array = _ARRAY.search(text)
    if array is None:
        raise ValueError(f"{trace} is not in the profiler's own formatting")
    events = array[1].split(_BETWEEN)
    again = _BETWEEN.join(x for x in events if _is_repeated(x)) + _BETWEEN
    once = _BETWEEN.join(x for x in events if not _is_repeated(x))
    with output.open("wb") as file:
        file.write(text[: array.start(1)])
        for copy in _copies(again, max(1, round(size / len(again)))):
            file.write(copy)
        file.write(once + text[array.end(1) :])


def _is_repeated(event: bytes) -> bool:
    return any(x in event for x in _REPEATED) and not any(x in event for x in _ONCE)


def _copies(events: bytes, count: int) -> Iterator[bytes]:
    """The same events `count` times, with their times and ids moved on."""
    parts: list[bytes] = []
    numbers: tuple[list[tuple[int, int]], ...] = ([], [], [])  # place and value
    position = 0
    for field in _NUMBER.finditer(events):
        group = field.lastindex or 0
        parts += [events[position : field.start(group)], field[group]]
        numbers[group // 2 - 1].append((len(parts) - 1, int(field[group].replace(b".", b""))))
        position = field.end(group)
    parts.append(events[position:])
    times, ids, steps = numbers
    later = _length_ns(events), _width(ids), _width(steps)
    for copy in range(count):
        for place, time in times:
            now = time + copy * later[0]
            parts[place] = b"%d.%03d" % (now // 1000, now % 1000)
        for values, step in ((ids, later[1]), (steps, later[2])):
            for place, number in values:
                parts[place] = b"%d" % (number + copy * step)
        yield b"".join(parts)


def _width(numbers: list[tuple[int, int]]) -> int:
    """How far the next copy's numbers must be from these not to meet them."""
    values = [x for _, x in numbers]
    return 1 + max(values) - min(values) if values else 0


def _length_ns(events: bytes) -> int:
    """From the first start to the last end; the fields are as wide as the times are."""
    spans = [[int(x.replace(b".", b"")) for x in span] for span in _SPAN.findall(events)]
    return max(map(sum, spans)) - min(start for start, _ in spans)


if __name__ == "__main__":
    main()
