"""What damage to a trace does to its figures, and whether it is told: run it as a module.

Each of ten captures is damaged in each of twenty ways, read, and compared to the whole file. The
printed busy share is that of the steady window, of the whole trace where no step is steady; the
true one is that of the same device in the same time of the whole file. A damage is told where the
damaged file has a loss that the whole one has not, or more of it. "SILENT" is an error of more
than two points that nothing tells.

A second table is of the same files without the arrows from launches to what they launched: a script
that filters a file leaves them, and what a profiler has lost has none.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tracelab.base.errors import TracelabError
from tracelab.base.intervals import clip, measure
from tracelab.model.timeline import Timeline, build_timeline
from tracelab.model.trace import ABSENT
from tracelab.read.reader import read_trace

Event = dict[str, Any]
CAPTURES = (
    "graphs_whole",
    "graphs_parts",
    "graphs_decoded_in_pieces",
    "graphs_recorded_once",
    "copies_own_stream",
    "prefetch_copy_stream_pinned",
    "data_parallel_data_parallel",
    "peer_copy_sender",
    "straggler_more_work_rank0",
    "events_item",
)
TRACES = Path(__file__).parents[2] / "traces"
MOST_SILENT = 0.02  # of the busy share
_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_CALLS = ("cuda_runtime", "cuda_driver")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one damaged file.

    Example: ``Outcome("graphs_parts", "half of the nodes", true=0.32, printed=0.16,
    told=("incomplete_replays",))``.

    Attributes:
        capture, damage: their names.
        true, printed: busy shares; the printed one is None where the file is refused.
        told: the losses, and how steps were left out, that the whole file does not have.
    """

    capture: str
    damage: str
    true: float
    printed: float | None
    told: tuple[str, ...]

    @property
    def error(self) -> float:
        """By how much the printed share is off."""
        return 0.0 if self.printed is None else abs(self.printed - self.true)

    @property
    def is_silent(self) -> bool:
        """Whether the figure is wrong and nothing says so."""
        return self.error > MOST_SILENT and not self.told


def is_gpu(event: Event) -> bool:
    return event.get("cat") in _GPU


def correlation(event: Event) -> int:
    return int(event.get("args", {}).get("correlation", ABSENT))


def launches(events: Sequence[Event], name: str) -> list[int]:
    """The correlations of the calls whose names contain a text, by start."""
    calls = [x for x in events if x.get("cat") in _CALLS and name in x["name"]]
    return [correlation(x) for x in sorted(calls, key=lambda x: x["ts"])]


def without(events: Sequence[Event], is_lost: Callable[[Event], bool]) -> list[Event]:
    return [event for event in events if not is_lost(event)]


def replays(events: list[Event], random: Random) -> list[Event]:
    graphs = launches(events, "GraphLaunch")
    lost = set(random.sample(graphs, round(0.8 * len(graphs))))
    return without(events, lambda x: is_gpu(x) and correlation(x) in lost)


def nodes(events: list[Event], random: Random) -> list[Event]:
    graphs = set(launches(events, "GraphLaunch"))
    lost = {id(x) for x in events if is_gpu(x) and correlation(x) in graphs}
    return without(events, lambda x: id(x) in lost and random.random() < 0.5)


def nodes_of_some(events: list[Event], random: Random) -> list[Event]:
    graphs = launches(events, "GraphLaunch")
    lost = set(random.sample(graphs, len(graphs) // 2))
    return without(events, lambda x: is_gpu(x) and correlation(x) in lost and random.random() < 0.5)


def stream(events: list[Event], _: Random) -> list[Event]:
    """All of the second busiest stream, which is that of the copies where one has its own."""
    counts = Counter((x["pid"], x["tid"]) for x in events if is_gpu(x))
    [*_, (lost, _)] = counts.most_common(2)
    return without(events, lambda x: is_gpu(x) and (x["pid"], x["tid"]) == lost)


def copies(events: list[Event], random: Random) -> list[Event]:
    rows = [id(x) for x in events if x.get("cat") == "gpu_memcpy"]
    lost = set(random.sample(rows, round(0.4 * len(rows))))
    return without(events, lambda x: id(x) in lost)


def memsets(events: list[Event], _: Random) -> list[Event]:
    return without(events, lambda x: x.get("cat") == "gpu_memset")


def every_second_kernel(events: list[Event], _: Random) -> list[Event]:
    lost = {id(x) for x in [x for x in events if x.get("cat") == "kernel"][::2]}
    return without(events, lambda x: id(x) in lost)


def kernels_of_a_step(events: list[Event], _: Random) -> list[Event]:
    steps = [x for x in events if x["name"].startswith("ProfilerStep#") and "dur" in x]
    steps = [x for x in steps if x["cat"] == "user_annotation"]
    step = steps[len(steps) // 2]
    calls = [x for x in events if x.get("cat") in _CALLS]
    lost = {correlation(x) for x in calls if step["ts"] <= x["ts"] < step["ts"] + step["dur"]} - {
        ABSENT
    }
    return without(events, lambda x: is_gpu(x) and correlation(x) in lost)


def launches_only(events: list[Event], _: Random) -> list[Event]:
    """A tenth of the kernels, in one piece: a buffer of the profiler that was dropped."""
    kernels = sorted((x for x in events if is_gpu(x)), key=lambda x: x["ts"])
    first = 4 * len(kernels) // 10
    lost = {id(x) for x in kernels[first : first + max(1, len(kernels) // 10)]}
    return without(events, lambda x: id(x) in lost)


def activities_only(events: list[Event], _: Random) -> list[Event]:
    return without(events, lambda x: x.get("cat") in _CALLS)


def tail(events: list[Event], _: Random) -> list[Event]:
    """The last 30 % of the time of the GPU's rows."""
    return _outside(events, 0.7, 1.0)


def head(events: list[Event], _: Random) -> list[Event]:
    return _outside(events, 0.0, 0.3)


def _outside(events: list[Event], first: float, last: float) -> list[Event]:
    rows = [x for x in events if is_gpu(x)]
    begin = min(x["ts"] for x in rows)
    length = max(x["ts"] for x in rows) - begin
    lost = (begin + first * length, begin + last * length)
    return without(events, lambda x: is_gpu(x) and lost[0] <= x["ts"] <= lost[1])


def device(events: list[Event], _: Random) -> list[Event]:
    """The last device of several; of one the rows of its kernels."""
    last = max(x["pid"] for x in events if is_gpu(x))
    is_one = last == min(x["pid"] for x in events if is_gpu(x))
    lost = ("kernel",) if is_one else _GPU
    return without(events, lambda x: x.get("cat") in lost and x["pid"] == last)


def thread(events: list[Event], _: Random) -> list[Event]:
    counts = Counter((x["pid"], x["tid"]) for x in events if x.get("cat") in _CALLS)
    [(lost, _)] = counts.most_common(1)
    return without(
        events, lambda x: x.get("ph") == "X" and not is_gpu(x) and (x["pid"], x["tid"]) == lost
    )


def twice(events: list[Event], _: Random) -> list[Event]:
    return [*events, *(x for x in events if is_gpu(x))]


def flows(events: list[Event], _: Random) -> list[Event]:
    return without(events, lambda x: x.get("ph") in ("s", "f"))


def steps(events: list[Event], _: Random) -> list[Event]:
    return without(events, lambda x: x["name"].startswith("ProfilerStep#"))


def negative(events: list[Event], random: Random) -> list[Event]:
    lost = {id(x) for x in events if is_gpu(x) and random.random() < 0.3}
    return [x | {"dur": -x["dur"] - 1} if id(x) in lost else x for x in events]


def late_clock(events: list[Event], _: Random) -> list[Event]:
    return [x | {"ts": x["ts"] + 5_000} if is_gpu(x) else x for x in events]


def early_clock(events: list[Event], _: Random) -> list[Event]:
    return [x | {"ts": x["ts"] - 5_000} if is_gpu(x) else x for x in events]


def renamed(events: list[Event], _: Random) -> list[Event]:
    return [x | {"cat": "gpu_work"} if x.get("cat") == "kernel" else x for x in events]


DAMAGES: Mapping[str, Callable[[list[Event], Random], list[Event]]] = {
    "8 of 10 replays": replays,
    "half of the nodes": nodes,
    "half of the nodes of half of the replays": nodes_of_some,
    "a stream": stream,
    "2 of 5 copies": copies,
    "all memsets": memsets,
    "every second kernel": every_second_kernel,
    "the work of one step": kernels_of_a_step,
    "a tenth of the GPU's rows, in one piece": launches_only,
    "all launches": activities_only,
    "the tail of the GPU's rows": tail,
    "the head of the GPU's rows": head,
    "one device, or all kernels": device,
    "the host's rows of one thread": thread,
    "the GPU's rows twice": twice,
    "the arrows": flows,
    "the steps": steps,
    "negative durations": negative,
    "the GPU's clock 5 ms late": late_clock,
    "the GPU's clock 5 ms early": early_clock,
    "other categories": renamed,
}
# Of the text: what is cut off of the plain file, and of the packed one.
CUTS = ("the end of the JSON", "the end of the gzip file")


def outcomes(
    captures: Sequence[str], damages: Sequence[str], *, with_arrows: bool = True
) -> Iterator[Outcome]:
    """Damage each of these captures in each of these ways."""
    with TemporaryDirectory() as folder:
        for capture in captures:
            path = TRACES / f"{capture}.pt.trace.json.gz"
            text = gzip.decompress(path.read_bytes())
            whole = build_timeline(read_trace(path))
            document = json.loads(text)
            for damage in damages:
                if damage == CUTS[0]:
                    damaged, ending = text[: 7 * len(text) // 10], ".json"
                elif damage == CUTS[1]:
                    packed = path.read_bytes()
                    damaged, ending = packed[: 7 * len(packed) // 10], ".json.gz"
                else:
                    events = DAMAGES[damage](document["traceEvents"], Random(capture + damage))
                    if events == document["traceEvents"]:
                        continue
                    events = events if with_arrows else flows(events, Random())
                    damaged = json.dumps(document | {"traceEvents": events}).encode()
                    ending = ".json"
                file = Path(folder, f"damaged{ending}")
                file.write_bytes(damaged)
                yield outcome(capture, damage, whole, file)


def outcome(capture: str, damage: str, whole: Timeline, file: Path) -> Outcome:
    """Compare a damaged file to the whole one."""
    try:
        damaged = build_timeline(read_trace(file))
    except TracelabError as error:
        return Outcome(capture, damage, 0.0, None, (type(error).__name__,))
    if not len(damaged.event_id):
        return Outcome(capture, damage, 0.0, None, ("no GPU activities",))
    window = damaged.steady.window if damaged.steady else damaged.windows[0]
    decides = damaged.busiest_device(window)
    shift_ns = damaged.trace.origin_ns - whole.trace.origin_ns
    before, after = told(whole), told(damaged)
    return Outcome(
        capture,
        damage,
        true=busy(whole, decides, window.start_ns + shift_ns, window.end_ns + shift_ns),
        printed=busy(damaged, decides, window.start_ns, window.end_ns),
        told=tuple(name for name, count in after.items() if count > before.get(name, 0)),
    )


def busy(timeline: Timeline, device_number: int, start_ns: int, end_ns: int) -> float:
    of_device = timeline.busy(timeline.select(device=device_number))
    return measure(clip(of_device, start_ns, end_ns)) / max(1, end_ns - start_ns)


def told(timeline: Timeline) -> Counter[str]:
    """What a report of this file says of its losses."""
    launched = timeline.launch_id != ABSENT
    launch_ns = timeline.trace.start_ns[timeline.launch_id[launched]]
    counts = Counter(timeline.trace.losses)
    counts.update(timeline.lost_work.counts())
    counts["activities_without_launch"] = int((~launched).sum())
    counts["overlapping_activities"] = timeline.overlapping_count
    counts["TL907"] = int(np.sum(timeline.start_ns[launched] < launch_ns))
    for left_out in timeline.steady.left_out if timeline.steady else ():
        counts[f"left out: {left_out.why.partition(' ')[0]}"] += 1
    return counts


def main(arguments: Sequence[str]) -> None:
    captures, chosen = arguments or CAPTURES, [*DAMAGES, *CUTS]
    for with_arrows in (True, False):
        print("With arrows" if with_arrows else "Without arrows")
        show(list(outcomes(captures, chosen, with_arrows=with_arrows)))


def show(of_files: Sequence[Outcome]) -> None:
    """Print a line for each damage, and one for each file whose figure is silently wrong."""
    for damage in dict.fromkeys(x.damage for x in of_files):
        of_damage = [x for x in of_files if x.damage == damage]
        names = Counter(name for x in of_damage for name in x.told)
        count = sum(bool(x.told) for x in of_damage)
        print(
            f"{damage:40} {len(of_damage):2} files, told in {count:2}, error up to "
            f"{100 * max(x.error for x in of_damage):5.1f} points: {', '.join(names)}"
        )
        for x in of_damage:
            if x.is_silent:
                printed = f"{100 * (x.printed or 0):.1f} %"
                print(f"    SILENT {x.capture}: {100 * x.true:.1f} % is {printed}")
    print(f"{len(of_files)} files, {sum(x.is_silent for x in of_files)} silent")


if __name__ == "__main__":
    main(sys.argv[1:])
