"""The picture of a job, of hand-made ranks. Times are in milliseconds."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.text import Text

from tests.build import job_rows as jobs
from tests.build.job_rows import MS
from tests.figures import figures
from tracelab.job.clocks import Alignment
from tracelab.outputs.scene_of_job import align_scenes, job_clocks
from tracelab.render.picture.timeline import choose_steps, draw_job
from tracelab.render.ranks import RankShares
from tracelab.render.scene import Lane, Scene, Span

LEFT, COLUMNS = 240, 1330
WORK_KINDS = ("compute", "forward", "backward", "other_compute", "comm", "copy", "memset")


def lane_of(id_, spans_ms, kinds, **more):
    """Make a lane of (start, end, kind) in order of start."""
    start, end, kind = zip(*sorted(spans_ms), strict=True) if spans_ms else ((), (), ())
    return Lane(
        id=id_,
        label="",
        device=None,
        kinds=kinds,
        start_ns=np.array(start, dtype=np.int64) * MS,
        end_ns=np.array(end, dtype=np.int64) * MS,
        kind=np.array([kinds.index(x) for x in kind], dtype=np.uint8),
        more=more,
    )


def work(*steps, ahead=0, origin=0, **of_kind):
    """A file whose clock is so much ahead of the job's, with steps of 10 ms one after another."""
    bounds = [(ahead + 10 * i, ahead + 10 * i + 10, "step") for i in range(len(steps))]
    whole = Span(ahead * MS, (ahead + 10 * max(1, len(steps))) * MS)
    spans = [
        (start + ahead, end + ahead, kind.lower())
        for kind, pairs in of_kind.items()
        for start, end in pairs
    ]
    lanes = [lane_of("steps", bounds, ("step",), number=np.array(steps))] if steps else []
    return Scene(
        path="rank.json",
        window=whole,
        focus=whole,
        start_ns=whole.start_ns,
        end_ns=whole.end_ns,
        threads=(),
        names=(),
        lanes=(*lanes, lane_of("work:0", spans, WORK_KINDS)),
        base_ns=origin * MS,
        usual_steps=steps,
    )


def draw(job, works, **options):
    said = {"title": "two ranks", "verdict": "rank 1 is late", "shares": {}, **options}
    scenes = align_scenes(job, [replace(x, rank=rank) for rank, x in works.items()])
    return draw_job(job, {x.rank: x for x in scenes}, **said).figure


def shapes_of(figure, kind):
    """Where there are shapes of this sort: (left, right) in ms, and which lane's, from the top."""
    axes = figure.axes[0]
    [found] = [c for c in axes.collections if c.get_gid() == kind]
    boxes = []
    for path in found.get_paths():
        (left, top), (right, _) = path.vertices.min(axis=0), path.vertices.max(axis=0)
        boxes.append((int(top) // 50, left / MS, right / MS))
    return sorted(boxes)


def texts_of(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


# Rank 0 computes for 4 ms of each step and waits for rank 1, which computes for 8: of the next 2 ms
# the transfer takes 1. The file of rank 1 is 7 ms ahead.
COLLECTIVES = (
    jobs.collective(4, 8, end_ms=9, last=1),
    jobs.collective(14, 18, end_ms=19, last=1, step=2),
)
JOB = jobs.job(
    jobs.rank_times(0, wait=4, transfer=1, idle=1),
    jobs.rank_times(1, transfer=1, idle=1),
    collectives=COLLECTIVES,
)
WORKS = {
    0: work(1, 2, COMPUTE=[(0, 4), (10, 14)], COMM=[(4, 9), (14, 19)]),
    1: work(1, 2, ahead=7, COMPUTE=[(0, 8), (10, 18)], COMM=[(8, 9), (18, 19)]),
}


class TestLanes:
    def test_all_ranks_are_on_one_clock(self):
        figure = draw(JOB, WORKS)
        assert shapes_of(figure, "compute") == [(0, 0, 4), (0, 10, 14), (1, 0, 8), (1, 10, 18)]

    def test_waits_are_apart_from_transfers(self):
        figure = draw(JOB, WORKS)
        assert shapes_of(figure, "wait") == [(0, 4, 8), (0, 14, 18)]
        assert shapes_of(figure, "transfer") == [(0, 8, 9), (0, 18, 19), (1, 8, 9), (1, 18, 19)]
        assert shapes_of(figure, "idle") == [(0, 9, 10), (0, 19, 20), (1, 9, 10), (1, 19, 20)]

    def test_communication_that_no_other_file_has_is_transfer(self):
        job = jobs.job(jobs.rank_times(0), jobs.rank_times(1))
        assert shapes_of(draw(job, WORKS), "transfer")[0] == (0, 4, 9)

    def test_a_transfer_beside_a_wait_leaves_it_the_upper_half(self):
        sends = jobs.collective(5, 5, end_ms=6)
        job = jobs.job(*JOB.per_rank, collectives=(*COLLECTIVES, sends))
        figure = draw(job, WORKS)
        assert shapes_of(figure, "wait")[:3] == [(0, 4, 5), (0, 5, 6), (0, 6, 8)]
        assert shapes_of(figure, "transfer")[:2] == [(0, 5, 6), (0, 8, 9)]

    def test_shares_beside_the_lanes_are_those_of_the_first_screen(self):
        """Rank 0 computes in 71 of 100 ms and waits in 17, whatever the shown steps are."""
        parts = {"compute_ns": 71, "wait_ns": 17, "transfer_ns": 0, "copy_ns": 0, "idle_ns": 12}
        mean = RankShares(0, 100, 100, **parts, unmatched_ns=0, waits_for=1)
        texts = texts_of(draw(JOB, WORKS, shares={0: mean}))
        assert [text for text in texts if text.endswith(" %")] == ["71 % / 17 %"]
        assert sum("of a mean step" in text for text in texts) == 1

    def test_without_shares_there_is_no_column_of_them(self):
        texts = texts_of(draw(JOB, WORKS))
        assert not any(text.endswith(" %") or "mean step" in text for text in texts)

    def test_a_straggler_is_marked(self):
        late = jobs.job(*JOB.per_rank, stragglers=(jobs.straggler(1, waiting=(0,)),))
        assert texts_of(draw(late, WORKS)).count("others wait for it") == 1
        assert "others wait for it" not in texts_of(draw(JOB, WORKS))

    def test_stages_are_named(self):
        stages = jobs.pipeline(2, per_stage=(jobs.stage(0, rank=1), jobs.stage(1, rank=0)))
        texts = texts_of(draw(jobs.job(*JOB.per_rank, pipeline=stages), WORKS))
        assert texts.index("stage 1") == texts.index("rank 0") + 1

    def test_captions(self, snapshot):
        texts = texts_of(draw(JOB, WORKS))
        assert "two ranks" in texts
        assert "rank 1 is late" in texts
        [below] = [text for text in texts if "agree within" in text]
        assert figures(below) == ["1", "2", "20.0 ms", "5.00 µs"]
        assert below == snapshot

    def test_which_of_the_recorded_steps_are_drawn(self):
        job = jobs.job(jobs.rank_times(0, steps=(1, 2, 3)))
        assert any(
            text.startswith("steps 1 and 2 (") and "of 3 steps" in text
            for text in texts_of(draw(job, {0: work(1, 2, 3)}))
        )


class TestClock:
    def test_a_clock_that_drifts_is_followed_from_step_to_step(self):
        slow = work(1, 2, COMPUTE=[(0, 4)])
        steps = (jobs.rank_step(1, 100, length=10), jobs.rank_step(2, 110, length=11))
        job = jobs.job(jobs.RankTimes(0, steps))
        [work_lane] = slow.lanes_of_type("work")
        moments_ns = np.array([0, 5, 10, 15, 20]) * MS
        lane = replace(
            work_lane, start_ns=moments_ns, end_ns=moments_ns, kind=np.zeros(5, dtype=np.uint8)
        )
        moved = replace(slow, lanes=(lane,)).moved_to_clock(job_clocks(job, {0: slow})[0])
        assert (moved.lanes[0].start_ns / MS).tolist() == [100, 105, 110, 115.5, 121]

    def test_files_without_steps_have_their_offset(self):
        """By the recorded clocks rank 1 began 3 ms after rank 0, but its clock is 2 ms ahead."""
        clocks = Alignment(None, 0, (jobs.clock(0), jobs.clock(1, offset_ns=2 * MS)))
        job = jobs.job(jobs.RankTimes(0, ()), jobs.RankTimes(1, ()), alignment=clocks)
        works = {
            0: work(COMPUTE=[(0, 4)]),
            1: work(origin=3, COMPUTE=[(0, 4)]),
        }
        figure = draw(job, works)
        assert shapes_of(figure, "compute") == [(0, 0, 4), (1, 1, 5)]


class TestSteps:
    def steps_of(self, lengths_ms, drawable=None):
        steps, start = [], 0
        for number, length in enumerate(lengths_ms):
            steps.append(jobs.rank_step(number, start, length=length))
            start += length
        job = jobs.job(jobs.RankTimes(0, tuple(steps)))
        numbers = tuple(range(len(steps))) if drawable is None else drawable
        return choose_steps(job, {0: work(*numbers)})

    def test_two_in_a_row_nearest_the_median(self):
        assert self.steps_of([30, 10, 12, 10, 10, 9]) == (3, 4)

    def test_one_where_there_is_no_more(self):
        assert self.steps_of([30]) == (0,)

    def test_only_those_whose_work_is_known(self):
        assert self.steps_of([10, 10, 10, 10], drawable=(2, 3)) == (2, 3)

    def test_only_those_that_all_ranks_have(self):
        job = jobs.job(jobs.rank_times(0, steps=(1, 2)), jobs.rank_times(1, steps=(2, 3)))
        assert choose_steps(job, {0: work(1, 2), 1: work(2, 3)}) == (2,)


@pytest.mark.parametrize("ranks", [1, 2, 64, 1000])
def test_any_number_of_ranks_fits(ranks):
    slow = jobs.straggler(ranks - 1, waiting=(0,))
    job = jobs.job(*map(jobs.rank_times, range(ranks)), stragglers=(slow,))
    figure = draw(job, dict.fromkeys(range(ranks), WORKS[0]))
    assert figure.bbox.height < 4900
    texts = texts_of(figure)
    assert f"rank {ranks - 1}" in texts  # the straggler is never left out
    assert any("64 of 1,000 ranks" in text for text in texts) == (ranks == 1000)


def test_lanes_of_very_many_ranks_do_not_overlap():
    job = jobs.job(*map(jobs.rank_times, range(64)))
    axes = draw(job, dict.fromkeys(range(64), WORKS[0])).axes[0]
    [work_of_all] = [c for c in axes.collections if c.get_gid() == "compute"]
    edges = {tuple(path.vertices[:, 1]) for path in work_of_all.get_paths()}
    assert len(edges) == 64
    ordered = sorted((min(y), max(y)) for y in edges)
    assert all(below <= top for (_, below), (top, _) in pairwise(ordered))
