import gzip
import json

import pytest

from tracelab.read.event_records import every_wait_is_resolved


@pytest.mark.parametrize(
    ("records", "resolved"), [([7, 8], True), ([7, -1], False), ([-1], False), ([], None)]
)
def test_waits_are_looked_at(tmp_path, records, resolved):
    file = tmp_path / "trace.json.gz"
    rows = [{"args": {"wait_on_cuda_event_record_corr_id": record}} for record in records]
    file.write_bytes(gzip.compress(json.dumps(rows).encode()))
    assert every_wait_is_resolved(file) is resolved
