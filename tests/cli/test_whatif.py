import gzip
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from tests.build.json_schema import json_schema
from tracelab import analyze, load_report, whatif
from tracelab.base.options import Options

TRACES = Path(__file__).parents[2] / "traces"


def trace(name):
    return TRACES / f"{name}.pt.trace.json.gz"


ITEM, WAIT = trace("events_item"), trace("events_wait")
PREFETCH, AHEAD = trace("prefetch_one_stream_pinned"), trace("prefetch_copy_stream_pinned")
SINFUL = trace("train_step_sinful")


def predicted(tracelab, *arguments):
    ran = tracelab("whatif", *arguments, "--json", "-")
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)


def test_every_fix_alone_then_all_together(tracelab):
    report = predicted(tracelab, SINFUL, "--fix", "all")
    *alone, together = report["whatif"]["predictions"]
    indices = [i for i, finding in enumerate(report["findings"]) if finding["edit"] is not None]
    assert [x["findings"] for x in alone] == [[i] for i in indices]
    assert together["name"] == "all together"
    assert together["findings"] == indices
    for x in (*alone, together):
        assert x["low_ns"] <= x["predicted_ns"] <= x["high_ns"]
        assert x["step_ns"] == together["step_ns"]
    assert together["predicted_ns"] < min(x["predicted_ns"] for x in alone)


def test_prediction_of_a_fix_is_the_saving_of_its_finding(tracelab):
    report = predicted(tracelab, SINFUL)
    for x in report["whatif"]["predictions"][:-1]:
        finding = report["findings"][x["findings"][0]]
        if finding["saves_ns"] is not None:
            assert max(0, x["step_ns"] - x["predicted_ns"]) == finding["saves_ns"]
            assert " + ".join(x["edits"]) == finding["edit"]


def test_number_counts_as_analyze_prints(tracelab):
    printed = tracelab("analyze", SINFUL).out
    report = predicted(tracelab, SINFUL, "--fix", "2")
    [only] = report["whatif"]["predictions"]
    assert only["findings"] == [1]
    second = printed[printed.index("\n2  ") : printed.index("\n3  ")]
    assert report["findings"][1]["title"] in " ".join(second.split())


def test_rule_is_all_its_findings_at_once(tracelab):
    report = predicted(tracelab, SINFUL, "--fix", "TL102")
    [only] = report["whatif"]["predictions"]
    assert [report["findings"][i]["rule"] for i in only["findings"]] == ["TL102", "TL102"]


def test_fixes_and_edits_in_the_order_asked_for(tracelab):
    report = predicted(
        tracelab, ITEM, "--edit", "unblock", "--fix", "1", "--edit", "scale:kernel:nvjet=0.5"
    )
    names = [x["name"] for x in report["whatif"]["predictions"]]
    assert names[0].startswith("TL101 `item`")
    assert names[1:] == ["unblock", "scale:kernel:nvjet=0.5", "all together"]


def test_table_has_the_step_as_it_is_and_the_savings(tracelab):
    ran = tracelab("whatif", ITEM, "--edit", "scale:kernel:nvjet=0.5")
    assert (ran.code, ran.err) == (0, "")
    assert "as it is" in ran.out
    assert "scale:kernel:nvjet=0.5" in ran.out
    assert "saves (interval)" in ran.out
    assert "Replayed without a change" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100


@pytest.mark.parametrize(
    ("flag", "value", "sentence"),
    [
        ("--fix", "99", "finding 99: there is no such finding."),
        ("--fix", "TL306", "TL306: there is no such finding."),
        ("--edit", "unblock:nowhere.py:1", "unblock:nowhere.py:1 matches nothing in these steps"),
    ],
)
def test_what_matches_nothing_is_the_baseline_and_a_sentence(tracelab, flag, value, sentence):
    ran = tracelab("whatif", ITEM, flag, value)
    assert ran.code == 0
    assert sentence in " ".join(ran.out.split())
    [only] = predicted(tracelab, ITEM, flag, value)["whatif"]["predictions"]
    assert only["predicted_ns"] == only["low_ns"] == only["high_ns"] == only["step_ns"]


def test_trace_that_cannot_be_replayed_says_why(tracelab, tmp_path):
    events = json.loads(_unpacked(ITEM))
    events["traceEvents"] = [
        x for x in events["traceEvents"] if x.get("cat") not in ("cuda_runtime", "cuda_driver")
    ]
    file = tmp_path / "no_launches.json"
    file.write_text(json.dumps(events))
    ran = tracelab("whatif", file, "--png", tmp_path / "no.png")
    assert ran.code == 0
    assert "No predictions: " in ran.out
    assert not (tmp_path / "no.png").exists()
    assert "is not drawn" in ran.err
    report = predicted(tracelab, file)
    assert report["whatif"]["predictions"] == []
    assert report["whatif"]["not_replayed"]


def _unpacked(path):
    return gzip.decompress(path.read_bytes())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--edit", "banana"), "'banana' is not an edit"),
        (("--edit", "scale:gemm"), "lacks its value"),
        (("--edit", "scale:gemm=x"), "'x' is not a number from 0 on"),
        (("--fix", "0"), "--fix takes the number of a finding"),
        (("--fix", "first"), "--fix takes the number of a finding"),
        (("--by", "line", "--png", "a.png"), "add --fix or --edit"),
        (("--png", "a.gif"), ".png, .svg or .pdf"),
        ((WAIT,), "these 2 files are not one job (--job says that they are)"),
        ((WAIT, "--by", "line"), "--by and --png are of one file"),
    ],
)
def test_wrong_usage_is_one_sentence(tracelab, arguments, sentence):
    ran = tracelab("whatif", ITEM, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert ran.err.count("\n") == 1


def test_by_is_one_of_four(tracelab):
    assert tracelab("whatif", ITEM, "--by", "step").code == 2


def test_missing_file_is_unreadable_input(tracelab):
    assert tracelab("whatif", "nowhere.json").code == 3


def test_saved_report_is_of_the_schema_and_loads_as_it_was(tracelab, tmp_path):
    file = tmp_path / "whatif.json"
    assert tracelab("whatif", ITEM, "--by", "kernel", "--fix", "1", "--json", file).code == 0
    jsonschema.validate(json.loads(file.read_bytes()), json_schema())
    report = load_report(file)
    assert report.whatif.predictions[0].findings == (0,)
    assert {row.by for row in report.causal} >= {"kernel"}
    assert report.to_json() == file.read_bytes()


def test_report_that_was_not_asked_has_neither(tracelab):
    report = json.loads(tracelab("analyze", ITEM, "--json", "-").out)
    assert (report["whatif"], report["causal"]) == (None, [])


def test_step_of_a_job(tracelab):
    ranks = [trace(f"straggler_more_work_rank{rank}") for rank in (0, 1)]
    ran = tracelab("whatif", *ranks, "--fix", "1")
    assert (ran.code, ran.err) == (0, "")
    assert "a job of 2 ranks" in ran.out
    report = predicted(tracelab, *ranks, "--fix", "1", "--edit", "balance")
    of_finding, balanced, together = report["whatif"]["predictions"]
    assert report["findings"][0]["rule"] == "TL304"
    assert of_finding["edits"] == ["level:rank:0"]
    for x in (of_finding, balanced, together):
        assert x["low_ns"] <= x["predicted_ns"] <= x["high_ns"] <= x["step_ns"]
    found = whatif(ranks, fixes=1)
    assert found.predictions[0].predicted_ns == of_finding["predicted_ns"]


def test_picture_is_drawn(tracelab, tmp_path):
    file = tmp_path / "both.svg"
    ran = tracelab("whatif", PREFETCH, "--fix", "1", "--png", file)
    assert (ran.code, ran.err) == (0, f"tracelab: drew {file}\n")
    drawn = file.read_text()
    for text in ("a step as it is: ", "predicted: ", "stream 7, new", "the CPU runs ahead"):
        assert text in drawn


def test_diff_with_the_saved_prediction_says_what_became_of_it(tracelab, tmp_path):
    file = tmp_path / "whatif.json"
    assert tracelab("whatif", PREFETCH, "--fix", "1", "--json", file).code == 0
    ran = tracelab("diff", file, AHEAD)
    text = " ".join(ran.out.split())
    assert "TL201 `to` in one_stream" in text
    assert "predicted to save 1." in text
    assert ", measured 1." in text
    found = json.loads(tracelab("diff", file, AHEAD, "--json", "-").out)
    [prediction] = found["predictions"]
    assert prediction["basis"] == "unprofiled"
    [rank] = found["ranks"]
    measured_ns = rank["unprofiled_before_ns"] - rank["unprofiled_after_ns"]
    assert prediction["measured_ns"] == measured_ns
    assert json.loads(tracelab("diff", PREFETCH, AHEAD, "--json", "-").out)["predictions"] == []


def test_python_predicts_the_same_and_takes_functions():
    def slower_kernels(program):
        is_activity = program.row >= 0
        return replace(program, cost_ns=program.cost_ns * (1 + is_activity))

    report = analyze(ITEM, Options(fixes=("1",), cache=False))
    found = whatif(ITEM, fixes=1)
    assert found == report.whatif
    assert str(found).startswith("A step takes ")
    [of_function, of_text, together] = whatif(ITEM, edits=[slower_kernels, "scale=2"]).predictions
    assert of_function.name == "slower_kernels"
    assert of_function.predicted_ns == of_text.predicted_ns
    assert together.predicted_ns > of_text.predicted_ns
    assert whatif(ITEM) == whatif(ITEM, fixes="all")
