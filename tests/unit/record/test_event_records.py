import gzip
import json
import os

import pytest

from tracelab.record.export import every_wait_is_resolved


@pytest.mark.parametrize(
    ("records", "resolved"), [([7, 8], True), ([7, -1], False), ([-1], False), ([], None)]
)
def test_waits_are_looked_at(tmp_path, records, resolved):
    file = tmp_path / "trace.json.gz"
    rows = [{"args": {"wait_on_cuda_event_record_corr_id": record}} for record in records]
    file.write_bytes(gzip.compress(json.dumps(rows).encode()))
    assert every_wait_is_resolved(file) is resolved


@pytest.mark.parametrize(("beyond", "resolved"), [(0, True), (1, None)])
def test_a_file_of_more_than_64_mib_is_not_looked_at(tmp_path, beyond, resolved):
    file = tmp_path / "trace.json"
    file.write_bytes(b'{"wait_on_cuda_event_record_corr_id": 7}')
    os.truncate(file, (64 << 20) + beyond)
    assert every_wait_is_resolved(file) is resolved


@pytest.mark.parametrize(("record", "resolved"), [(4711, True), (-1, False)])
def test_waits_of_cuspy_name_no_stream_and_need_no_record_rows(tmp_path, record, resolved):
    # As torch/profiler/_cuspy/trace.py writes it: without spaces, and never with a stream.
    wait = {
        "cuda_sync_kind": "Stream Wait Event",
        "stream": 20,
        "correlation": 4720,
        "device": 0,
        "context": 1,
        "wait_on_stream": -1,
        "wait_on_cuda_event_id": 3,
        "wait_on_cuda_event_record_corr_id": record,
    }
    row = {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "args": wait}
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": [row]}, separators=(",", ":")))
    assert every_wait_is_resolved(file) is resolved
