"""Small recorded programs of one pitfall each: a finding names its remedy.

The programs are in ``tests/benchmarks/remedy_programs``.
"""

import pytest

from tests.benchmarks.judgement.packed import unpack
from tests.bundled_traces import FOLDER
from tracelab import analyze
from tracelab.base.options import Options

TRACES = FOLDER.parent / "tests/benchmarks/remedy_programs/traces"
OTHERS = {
    "read_for_next_input": ["read-for-next-input", "computed-input"],
    "hf_trainer": ["hf-nan-filter", "hf-trainer-log"],
    "torchmetrics_metrics": ["torchmetrics-nan-check"],
}
LARGE = ("hf_trainer", "detection_choices", "sync_batch_norm_rank1", "tensor_parallel_rank1")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=pytest.mark.slow if path.stem in LARGE else ())
        for path in sorted(TRACES.glob("*.packed"))
    ],
)
def test_the_pitfall_of_a_program_is_named(name, tmp_path):
    path = tmp_path / f"{name}.pt.trace.json"
    path.write_text(unpack((TRACES / f"{name}.packed").read_bytes()))
    wanted = OTHERS.get(name, [name.partition("_rank")[0].replace("_", "-")])
    told = {finding.remedy for finding in analyze(path, Options(prices=False)).findings}
    assert told >= {*wanted}
