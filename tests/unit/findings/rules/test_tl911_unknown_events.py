"""TL911: what tracelab does not know is named, and said first where it matters."""

from __future__ import annotations

import pytest

from tests.build.files import complete_event, copy, kernel, launch, memset, write
from tests.build.finding_events import clean
from tests.build.rows import US
from tests.figures import figures
from tracelab import analyze, load_report, write_page
from tracelab.base.options import Options
from tracelab.findings.finding import INFO, WARNING
from tracelab.render.first_screen import first_screen
from tracelab.render.sections.files import losses
from tracelab.report.redact import Redaction

HOSTILE = "foo`\x1b[31m\u202e</script>\n/home/me/secret.py"


def node(category, start, end, *, name="f", **lane):
    """An event of some category in the row of a GPU's stream."""
    lane = {"device": 0, "stream": 7, **lane}
    return complete_event(name, category, start, end, pid=0, tid=7, **lane)


def new_copy(start, end, **kinds):
    """A copy as PyTorch's own collector writes it, and its launch."""
    made = copy(start, end, "Memcpy", stream=8, correlation=900 + start // US)
    made["args"] |= {name.replace("_", " "): kind for name, kind in kinds.items()}
    return [launch(start - US, start, 900 + start // US, name="cudaMemcpyAsync"), made]


def new_wait(kind, start):
    """A wait of some kind in the rows of a GPU."""
    return complete_event(kind, "cuda_sync", start, start, pid=0, tid=7, device=0, stream=7)


# Names that no profiler writes, each in what it could be the name of.
TOMORROW = [
    *(node("graph_foo_node", (300 + i) * US, (300 + i) * US + 500) for i in range(12)),
    *new_copy(220 * US, 240 * US, copy_kind="XtoY"),
    *new_copy(250 * US, 290 * US, copy_kind="HtoD", src_kind="quantum", dst_kind="device"),
    new_wait("Warp Sync", 5 * US),
]


def test_memory_of_a_memset_is_named_too(tmp_path):
    """PyTorch's own collector writes the number that CUPTI gives the kind of memory."""
    filled = memset(300 * US, 301 * US)
    filled |= {"name": "Memset", "args": {**filled["args"], "memory kind": 42}}
    [name] = analyze(write(tmp_path / "t.json", [*clean(), filled])).traces[0].loss_names
    assert (name.loss, name.name, name.count) == ("unknown_memories", "Memset (42)", 1)


def about(report):
    return {x.cause: (x.severity, x.title) for x in report.findings if x.rule == "TL911"}


def test_names_that_do_not_exist_yet_are_in_the_report(tracelab, tmp_path, snapshot):
    """GIVEN a category, a kind of copy, of memory and of waits that nobody has heard of
    THEN each is named in the notes, in the full report, on the page and in the JSON."""
    path = write(tmp_path / "tomorrow.json", [*clean(), *TOMORROW])
    report = analyze(path)
    assert {
        (x.loss, x.name, x.count, x.devices, x.gpu_ns) for x in report.traces[0].loss_names
    } == {
        ("unknown_categories", "graph_foo_node", 12, (0,), 6_000),
        ("copies_without_direction", "Memcpy (copy kind XtoY)", 1, (0,), 20_000),
        ("unknown_memories", "Memcpy HtoD (quantum -> Device)", 1, (0,), 40_000),
        ("unknown_waits", "Warp Sync", 1, (), 0),
    }
    # 6 of about 250 us of busy time; 20 and 40 of 60 us of copies.
    assert about(report) == snapshot
    write_page(path, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    notes = " ".join(note.text for note in first_screen(report).notes)
    full = " ".join(tracelab("analyze", path, "--full").out.split())
    names = ("graph_foo_node", "copy kind XtoY", "quantum", "Warp Sync")
    for name in names:
        assert name in notes
        assert name in full
        assert name in page
    left_out = "12 events of categories that tracelab does not know were left out"
    assert f"{left_out}: `graph_foo_node` (12, on GPU 0)" in full


def test_what_is_known_needs_no_word(lacks):
    known = [
        node("cuda_profiler_range", 5 * US, 6 * US),
        node("tracelab.idle", 5 * US, 6 * US),
        *new_copy(220 * US, 240 * US, copy_kind="HtoD", src_kind="pinned", dst_kind="device"),
        memset(250 * US, 251 * US, stream=8),
        new_wait("Event Sync", 5 * US),
    ]
    assert "TL911" not in {rule for rule, *_ in lacks(*clean(), *known)}


@pytest.mark.parametrize(
    ("event", "severity"),
    [
        # A hundredth of the 190 us in which the GPU is busy is 1.9 us.
        (node("foo", 10 * US, 12 * US), WARNING),
        (node("foo", 10 * US, 11 * US), INFO),
        (complete_event("f", "foo", 10 * US, 20 * US, pid=0, tid=7), WARNING),  # the GPU's row
        (complete_event("f", "foo", 10 * US, 20 * US), None),  # on the host
        (node("foo", 10 * US, 20 * US, device="x"), WARNING),
        (complete_event("f", "foo", 10 * US, 20 * US, pid=9, tid=9, device=-1, stream=-1), None),
    ],
)
def test_an_unknown_category_matters_on_a_gpu(tmp_path, event, severity):
    report = analyze(write(tmp_path / "t.json", [*clean(), event]))
    assert [found for found, _ in about(report).values()] == ([severity] if severity else [])
    assert report.traces[0].losses["unknown_categories"] == 1


def test_few_copies_without_a_direction_are_among_the_losses(tmp_path):
    """GIVEN 1 of 101 us of copies without a direction THEN the losses name it, and no finding."""
    known = new_copy(300 * US, 400 * US, copy_kind="HtoD", src_kind="pinned", dst_kind="device")
    unknown = new_copy(410 * US, 411 * US, copy_kind="XtoY")
    report = analyze(write(tmp_path / "t.json", [*clean(), *known, *unknown]))
    assert about(report) == {}
    assert [x.name for x in report.traces[0].loss_names] == ["Memcpy (copy kind XtoY)"]


def test_of_many_names_the_most_frequent_are_listed(tracelab, tmp_path):
    events = [
        node(f"foo_{kind}", (300 + 20 * kind + i) * US, (300 + 20 * kind + i) * US + 100)
        for kind in range(13)
        for i in range(kind + 1)
    ]
    path = write(tmp_path / "t.json", [*clean(), *events])
    report = analyze(path)
    names = [(x.name, x.count) for x in report.traces[0].loss_names]
    assert names == [(f"foo_{kind}", kind + 1) for kind in range(12, 2, -1)]
    # 1 + 2 + ... + 13 = 91 events, 85 of them with one of these names.
    full = " ".join(tracelab("analyze", path, "--full").out.split())
    assert "`foo_3` (4, on GPU 0) and 6 with other names" in full
    [(_, title)] = about(report).values()
    assert title.endswith("`foo_12` (13), `foo_11` (12), `foo_10` (11) and 49 with other names")


def test_hostile_names_are_text(tracelab, tmp_path):
    path = write(tmp_path / "t.json", [*clean(), node(HOSTILE, 10 * US, 20 * US)])
    shown = tracelab("analyze", path, "--full").out
    assert "\x1b[31m" not in shown
    assert "\u202e" not in shown
    assert "`foo'" in shown
    write_page(path, tmp_path / "page.html")
    assert "</script>\n/home" not in (tmp_path / "page.html").read_text()
    report = analyze(path)
    names = Redaction(report).apply(report).traces[0].loss_names
    assert "/home/me" not in names[0].name
    long = write(tmp_path / "long.json", [*clean(), node("x" * 5_000, 10 * US, 20 * US)])
    assert len(analyze(long).traces[0].loss_names[0].name) == 200


def test_names_of_several_files_are_counted_together(tmp_path, snapshot):
    """GIVEN two files with 1 and 2 events of a category each, and others beside them
    THEN one note names the worst and says how many others there are; losses are summed."""
    paths = [
        write(
            tmp_path / f"rank{rank}.json",
            [
                *clean(),
                *(node("foo", (300 + i) * US, (301 + i) * US) for i in range(rank + 1)),
                kernel(400 * US, 410 * US),
            ],
        )
        for rank in range(2)
    ]
    [section] = losses(analyze(paths).traces)
    left_out = "events of categories that tracelab does not know were left out: `foo` (3)"
    assert ("3", left_out, "in 2 of 2 files") in section.rows
    [note] = [x for x in first_screen(analyze(paths)).notes if x.rule == "TL911"]
    assert {"2", "1"} <= {*figures(note.text.replace("(", ""))}
    assert note.text == snapshot


def test_names_stay_in_a_saved_report(tmp_path):
    path = write(tmp_path / "tomorrow.json", [*clean(), *TOMORROW])
    report = analyze(path, Options(cache=False))
    saved = tmp_path / "report.json"
    saved.write_bytes(report.to_json())
    assert load_report(saved).traces == report.traces
