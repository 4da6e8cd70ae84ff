"""A document is plain data: it can be saved, and what is drawn of it later is the same."""

import pickle

import pytest

from tests.build import job_rows as jobs
from tests.build.report_rows import make_job_report, make_report, make_steps, make_trace
from tracelab.render.document import detailed
from tracelab.render.text.screen import screen

JOB = make_job_report(2, job=jobs.job(*[jobs.rank_times(rank, (0, 1, 2)) for rank in range(2)]))
FILES = make_report(
    *(window for rank in range(2) for window in make_steps([10] * 3, rank=rank)),
    traces=tuple(make_trace(path=f"{rank}.json", rank=rank) for rank in range(2)),
)


@pytest.mark.parametrize("report", [make_report(), JOB, FILES], ids=["file", "job", "files"])
def test_saved_document_is_drawn_alike(report):
    document = detailed(report)
    saved = pickle.loads(pickle.dumps(document))
    assert saved == document
    assert saved.chapters
    assert screen(saved, width=80) == screen(document, width=80)
