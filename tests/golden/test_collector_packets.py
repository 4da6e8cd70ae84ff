"""Captures as Perfetto traces of PyTorch's own collector: the reports are those of its JSON.

Both are made from bundled captures (`tests.build.cupti_collector` and `.collector_packets`), the
JSON without what the packets do not have: kinds of copies, versions, names of devices.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.build import collector_packets, cupti_collector
from tests.build.cupti_collector import Collector, stream_order
from tests.bundled_traces import FOLDER
from tracelab import Options, analyze

CAPTURES = {
    "ddp_hook_side_stream_rank1": Collector(),
    "events_wait": Collector(),
    "prefetch_copy_stream_synchronize": Collector(),
    "two_streams_small_graph": Collector(links=stream_order),
}


def report_of(path: Path) -> dict[str, Any]:
    """The report of a file, without its name and the number of its objects."""
    report: dict[str, Any] = json.loads(analyze(str(path), options=Options(cache=False)).to_json())
    del report["provenance"]
    [trace] = report["traces"]
    return report | {"traces": [{k: x for k, x in trace.items() if k not in OF_FILE}]}


OF_FILE = ("path", "objects", "events")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name.startswith(("events", "two")) else pytest.mark.slow)
        for name in CAPTURES
    ],
)
def test_the_report_is_the_same_to_the_nanosecond(tmp_path, name):
    capture = cupti_collector.load(FOLDER / f"{name}.pt.trace.json.gz")
    recorded = cupti_collector.collect(capture, CAPTURES[name])
    as_json = cupti_collector.chrome(collector_packets.as_in_packets(recorded))
    in_order = collector_packets.in_order_of_packets(as_json)
    packets = collector_packets.write(recorded, tmp_path / f"{name}.pftrace")
    chrome = cupti_collector.write(in_order, tmp_path / f"{name}.json.gz")
    assert report_of(packets) == report_of(chrome)
