"""The latencies that decide what is late, against the captures that they were measured on."""

from pathlib import Path

import numpy as np
import pytest

from tests import bundled_traces
from tests.benchmarks import latencies, unexplained_delays
from tests.shared_traces import FOLDER, PATHS, needs_real_traces
from tracelab.model.latencies import LATENCIES, UNEXPLAINED_NS

ROOT = Path(__file__).parents[2]
# Collectives that wait for an event and then for a multiprocessor, recorded without event records.
UNSURE = {
    *(f"collectives_all_reduce_async_plain_rank{rank}" for rank in (0, 1)),
    *(f"ddp_hook_side_stream_plain_rank{rank}" for rank in (0, 1)),
    *(f"fsdp_prefetch_plain_rank{rank}" for rank in (0, 1)),
    "pipeline_gpipe_few_plain_rank0",
    *(f"straggler_even_plain_rank{rank}" for rank in (0, 1)),
    *(f"two_groups_one_late_plain_rank{rank}" for rank in (0, 1)),
}


@pytest.fixture(scope="module")
def samples():
    [of_h200] = latencies.measure(latencies.captures()).values()
    return of_h200


@pytest.mark.whole_corpus
def test_typical_latencies_are_the_medians_of_the_captures(samples):
    measured = [latencies.typical_ns(samples, number) for number in range(len(LATENCIES))]

    assert [latency.typical_ns for latency in LATENCIES] == measured


@pytest.mark.whole_corpus
def test_what_is_typical_is_far_from_late(samples):
    # Of each sort 99 of 100 starts come less than the limit after the median.
    for latency, starts_ns in zip(LATENCIES, samples, strict=True):
        if len(starts_ns):
            assert np.quantile(starts_ns, 0.99) < latency.typical_ns + UNEXPLAINED_NS


@needs_real_traces
@pytest.mark.slow
def test_other_gpus_are_no_slower():
    paths = [*PATHS, *sorted(FOLDER.glob("*/*.json.gz"))]
    complete = [str(path) for path in paths if "sampled" not in path.name]
    of_gpu = latencies.measure(complete)

    assert len(of_gpu) >= 7
    for samples in of_gpu.values():
        longest_ns = max(starts_ns.max(initial=0) for starts_ns in samples)
        assert 0 < longest_ns <= 26_000


@pytest.mark.whole_corpus
def test_what_is_unexplained_in_the_captures():
    shares = {
        bundled_traces.name_of(path): unexplained_delays.share_of(bundled_traces.report_of(path))
        for path in bundled_traces.PATHS
    }

    assert {name for name, share in shares.items() if share > 0.02} == UNSURE
    assert max(share for name, share in shares.items() if name not in UNSURE) < 0.002
    assert sum(share == 0 for share in shares.values()) == 226
