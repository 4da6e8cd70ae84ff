import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text

import tracelab
from tests.build import files
from tracelab.analysis.analysis import analyze_source
from tracelab.base.errors import UnreadableInputError, UsageError
from tracelab.base.options import Options
from tracelab.read.sources import find_sources
from tracelab.render.first_screen import first_screen
from tracelab.render.scene import Evidence
from tracelab.report.headline import headline_of
from tracelab.report.views import ranks_of

TRACE = Path(__file__).parents[3] / "traces" / "prefetch_copy_stream_synchronize.pt.trace.json.gz"


@pytest.fixture(scope="module")
def analysis():
    [source] = find_sources([str(TRACE)])
    return analyze_source(source)


def test_a_file_and_its_analysis_give_the_same_picture(analysis):
    drawn = tracelab.draw(TRACE)._repr_png_()
    assert drawn == tracelab.draw(analysis)._repr_png_() == tracelab.draw(str(TRACE))._repr_png_()


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("new/a.svg", b"<?xml"), ("a.pdf", b"%PDF")]
)
def test_picture_is_written(analysis, tmp_path, name, start):
    tracelab.draw(analysis, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def words_of(trace, **settings):
    figure = tracelab.draw(trace, **settings).figure
    return [text.get_text() for text in figure.findobj(Text)]


def caption_of(trace, **settings):
    """What a picture says it shows, in parts."""
    [caption] = [x for x in words_of(trace, **settings) if " into the trace" in x]
    return caption.split("  ·  ")


def test_the_headline_is_the_verdict_and_below_it_stand_the_file_and_what_is_shown(analysis):
    said = first_screen(analysis.report)
    words = words_of(analysis, width_px=3000)
    assert said.verdict in words
    assert caption_of(analysis)[0] == TRACE.name
    for item in said.items:
        [key] = [x for x in words if item.title.rstrip(".") in x and item.finding.rule in x]
        assert item.place in key
        assert words.count(str(item.number)) >= 2 or key.endswith("not in what is shown")


def test_the_steady_step_of_median_length_is_shown_unless_another_is_chosen(analysis):
    steady = analysis.timeline.steady.indices
    steps = sorted(
        (analysis.timeline.steps[i] for i in steady), key=lambda x: x.end_ns - x.start_ns
    )
    median = steps[(len(steps) - 1) // 2]
    assert caption_of(analysis)[1].startswith(f"step {median.number}, of median length")
    assert limits_of(tracelab.draw(analysis)) == median.end_ns - median.start_ns
    assert caption_of(analysis, step=4)[1] == "step 4"
    whole = tracelab.draw(analysis, step="all")
    assert limits_of(whole) == analysis.timeline.windows[0].length_ns
    assert caption_of(analysis, step="all")[1] == "all of the trace"
    assert caption_of(analysis, start_ms=3)[1] == "part of all of the trace"
    with pytest.raises(UsageError, match="there is no step 99; the file's steps are: "):
        tracelab.draw(analysis, step=99)


def limits_of(picture):
    return picture.figure.axes[0].get_xlim()[1]


def test_a_step_without_the_first_finding_gives_way_to_the_next_in_length_with_it(
    analysis, monkeypatch
):
    steady = [analysis.timeline.steps[i] for i in analysis.timeline.steady.indices]
    step = max(steady, key=lambda x: x.end_ns - x.start_ns)
    place = Evidence("host:0", step.start_ns + 1, step.start_ns + 2)
    monkeypatch.setattr("tracelab.outputs.picture.evidence_of", lambda *_: (place,))
    shown = caption_of(analysis)[1]
    assert shown == f"step {step.number}, nearest the median length of those with finding 1"


def test_findings_of_a_rank_alone_are_marked():
    trace = TRACE.with_name("straggler_slow_loader_rank1.pt.trace.json.gz")
    assert not any("not in what is shown" in x for x in words_of(trace))


def test_a_file_without_steps_is_shown_whole_and_says_so(tmp_path):
    path = files.write(tmp_path / "a.json", [files.kernel(0, 50_000)])
    name, shown, *_ = caption_of(path)
    assert (name, shown) == ("a.json", "all of the trace, no steps found")


def test_a_finding_is_shown_where_the_worst_of_it_lies():
    """GIVEN each finding of a program
    THEN the picture lies in one step, and what it cites is marked and at least 40 pixels wide."""
    trace = TRACE.with_name("train_step_sinful.pt.trace.json.gz")
    [source] = find_sources([str(trace)])
    analysis = analyze_source(source)
    steps = [(x.start_ns, x.end_ns) for x in analysis.timeline.steps]
    for number in (1, 2, 3):
        picture = tracelab.draw(analysis, finding=number)
        (axes,) = picture.figure.axes
        [frames] = [x for x in axes.collections if x.get_gid() == "marks"]
        columns = picture.figure.bbox.width - 270
        widths = [np.ptp(x.vertices[:, 0]) / limits_of(picture) for x in frames.get_paths()]
        assert max(widths) * columns >= 39
        assert limits_of(picture) <= max(end - start for start, end in steps)
        assert str(number) in [text.get_text() for text in axes.texts]
    with pytest.raises(UsageError, match="choose one of the two"):
        tracelab.draw(analysis, finding=1, step=3)
    with pytest.raises(UsageError, match="there is no finding 99; there are "):
        tracelab.draw(analysis, finding=99)


def test_picture_shows_what_is_asked_for(analysis):
    def words(**settings):
        return words_of(analysis, **settings)

    assert "my step" in words(title="my step")
    assert "stream 13" in words()
    assert "stream 13" not in words(lanes=["stream:0/7"])
    wide, narrow = (tracelab.draw(analysis, width_px=x).figure.bbox.width for x in (1600, 800))
    assert (wide, narrow) == (1600, 800)


def test_one_step_or_a_stretch_of_it_can_be_drawn():
    step = tracelab.draw(TRACE, options=Options(step=4))
    part = tracelab.draw(TRACE, options=Options(step=4), start_ms=0.5, end_ms=1)
    assert step._repr_png_() != part._repr_png_()


@pytest.mark.parametrize(
    ("stretch", "message"),
    [
        ({"start_ms": -1}, "nothing to draw between -1 ms"),
        ({"step": 4, "start_ms": -1}, "nothing to draw between -1 ms"),
        ({"start_ms": 2, "end_ms": 1}, "nothing to draw between 2 ms and 1 ms"),
        ({"start_ms": 1e6}, "what can be drawn is from"),
        ({"end_ms": float("nan")}, "must start and end within"),
    ],
)
def test_a_stretch_of_nothing_is_wrong_usage(analysis, stretch, message):
    with pytest.raises(UsageError, match=message):
        tracelab.draw(analysis, **stretch)


def test_a_folder_is_drawn_as_the_files_in_it(tmp_path):
    paths = [tmp_path / name for name in ("a.pt.trace.json.gz", "b.pt.trace.json.gz")]
    for path in paths:
        shutil.copy(TRACE, path)
    assert tracelab.draw(tmp_path).png() == tracelab.draw(paths).png()
    with pytest.raises(UnreadableInputError, match="no such file"):
        tracelab.draw(tmp_path / "c.json")


def test_files_of_one_job_are_drawn_on_one_clock():
    ranks = sorted(TRACE.parent.glob("straggler_more_work_rank*"))
    figure = tracelab.draw(ranks).figure
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert "traces: 2 ranks on one clock" in texts
    assert any(text.startswith("Rank 0 makes rank 1 wait") for text in texts)
    assert tracelab.draw(ranks, title="mine").figure.findobj(
        lambda x: isinstance(x, Text) and x.get_text() == "mine"
    )


def test_files_of_no_job_are_drawn_one_above_the_other():
    figure = tracelab.draw([TRACE, TRACE.with_name("events_item.pt.trace.json.gz")]).figure
    texts = [text.get_text() for text in figure.findobj(Text)]
    names = [x.partition("  ·  ")[0] for x in texts if " into the trace" in x]
    assert names == [TRACE.name, "events_item.pt.trace.json.gz"]


def shares_of(figure):
    """The busy share of each GPU in a picture, and what each is of."""
    texts = [text.get_text() for text in figure.findobj(Text)]
    of = [text.partition("busy share of ")[2] for text in texts]
    return [text for text in texts if text.startswith("busy ")], list(filter(None, of))


def test_busy_shares_are_those_of_the_report_unless_a_part_is_chosen(analysis):
    headline = headline_of(ranks_of(analysis.report)[0])
    printed = [f"busy {100 * headline.busy_share:.0f} %"]
    assert shares_of(tracelab.draw(analysis).figure) == (printed, ["the steady steps"])
    assert shares_of(tracelab.draw(analysis, lanes="host").figure) == ([], [])
    for part in ({"start_ms": 1}, {"end_ms": 1}):
        assert shares_of(tracelab.draw(analysis, **part).figure)[1] == ["the shown time"]
    step = tracelab.draw(TRACE, options=Options(step=4)).figure
    assert shares_of(step)[1] == ["step 4"]
