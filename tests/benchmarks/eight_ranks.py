"""A job of eight ranks, read by hand: ``python tests/benchmarks/eight_ranks.py [FOLDER]``.

``../shared/real_traces/param_dlrm_8ranks`` is a public capture (facebookresearch/param) of one step
of a recommender on eight V100s of one host: a clock, eight collectives, times in whole us. This
script reads its JSON by itself, and compares what tracelab says of the same files. For each
collective it prints

- which rank arrived last, how long the others waited and how long the transfer took then;
- behind: by how much later than the typical rank it launched the collective, and of that what it
  brought along from the collective before (the first: when its recording began) and what its host
  took longer for since then, blocking calls not counted;
- what tracelab says: the last rank, the largest difference from the waits above, and the reason.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import tracelab

FOLDER = Path(__file__).parents[2] / "../shared/real_traces/param_dlrm_8ranks"
Event = dict[str, Any]


class Rank:
    """One rank's file.

    Attributes:
        collectives: its NCCL kernels, in order.
        launches: the calls that launched them.
        begin_us: when its step began.
        host_us: for how long its host was at work before each launch, since then.
    """

    def __init__(self, path: Path) -> None:
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        events = [event for event in events if event["ph"] == "X"]
        kernels = [event for event in events if event["cat"] == "kernel"]
        calls = [event for event in events if event["cat"] == "cuda_runtime"]
        pageable = {event["args"]["correlation"] for event in events if "Pageable" in event["name"]}
        nccl = [event for event in kernels if event["name"].startswith("nccl")]
        self.collectives = sorted(nccl, key=lambda event: event["ts"])
        by_correlation = {call["args"]["correlation"]: call for call in calls}
        self.launches = [by_correlation[x["args"]["correlation"]] for x in self.collectives]
        [self.begin_us] = [x["ts"] for x in events if x["name"].startswith("ProfilerStep")]
        blocking = [
            call
            for call in calls
            if "Synchronize" in call["name"]
            or (call["name"] == "cudaMemcpyAsync" and call["args"]["correlation"] in pageable)
        ]
        self.host_us = []
        for launch in self.launches:
            span_us = (self.begin_us, launch["ts"])
            blocked_us = sum(_within(call, *span_us) for call in blocking)
            self.host_us.append(span_us[1] - span_us[0] - blocked_us)


def _within(event: Event, start_us: int, end_us: int) -> int:
    return max(0, min(event["ts"] + event["dur"], end_us) - max(event["ts"], start_us))


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    ranks = [Rank(path) for path in sorted(folder.glob("*_rank*.json.gz"))]
    job = tracelab.analyze(folder).job
    print("| | last | the others waited | transfer | behind | brought along | since | tracelab |")
    print("|---|---|---|---|---|---|---|---|")
    for index, said in enumerate(job.collectives):
        arrivals_us = [rank.collectives[index]["ts"] for rank in ranks]
        last = max(range(len(ranks)), key=arrivals_us.__getitem__)
        waits_us = [arrivals_us[last] - arrival_us for arrival_us in arrivals_us]
        others_us = sorted(waits_us[:last] + waits_us[last + 1 :])
        launched_us = [rank.launches[index]["ts"] for rank in ranks]
        host_us = [
            rank.host_us[index] - (rank.host_us[index - 1] if index else 0) for rank in ranks
        ]
        behind_us = launched_us[last] - median(launched_us)
        since_us = host_us[last] - median(host_us)
        off_us = max(
            abs(wait_us - wait_ns / 1e3)
            for wait_us, wait_ns in zip(waits_us, said.wait_ns, strict=True)
        )
        print(
            f"| {index + 1} {said.operation} | {last} | {others_us[0]} to {others_us[-1]} "
            f"| {ranks[last].collectives[index]['dur']} | {behind_us:.0f} "
            f"| {behind_us - since_us:.0f} | {since_us:.0f} "
            f"| {said.last_rank}, {off_us:.0f}: {said.cause}, {said.why} |"
        )


if __name__ == "__main__":
    main()
