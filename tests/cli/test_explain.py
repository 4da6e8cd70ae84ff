import pytest

from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.report.glossary import GROUPS


def test_all_rules_and_words_are_listed(tracelab):
    ran = tracelab("explain")
    assert ran.code == 0
    lines = ran.out.splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("  TL")]
    assert listed == sorted(rule.id for rule in RULES)
    assert [group.title for group in GROUPS[1:] if group.title not in lines] == []
    assert all(len(line) <= 100 for line in lines)
    remedies = ran.out.partition("tracelab explain remedies)")[2].replace(",", " ").split()
    assert [remedy.id for remedy in REMEDIES if remedy.id not in remedies] == []


def test_a_rule_is_explained_with_an_example(tracelab):
    ran = tracelab("explain", "tl203")
    assert ran.code == 0
    first, *titles = [line for line in ran.out.splitlines() if line and not line.startswith(" ")]
    assert first.startswith("TL203: ")
    assert titles == ["Why it matters", "How it decides", "Before", "After"]
    assert all(len(line) <= 100 for line in ran.out.splitlines())


def test_what_is_about_the_trace_has_no_example(tracelab):
    assert "Before" not in tracelab("explain", "TL903").out


def test_a_family_lists_its_rules(tracelab):
    lines = tracelab("explain", "tl2").out.splitlines()
    assert lines[0] == "TL2: a family of rules"
    listed = [line.split()[0] for line in lines if line.startswith("  TL")]
    assert listed == sorted(rule.id for rule in RULES if rule.id.startswith("TL2"))


@pytest.mark.parametrize("word", ["edge", "EDGE", "trace boundary", "trace-boundary"])
def test_a_word_is_known_by_its_key_and_by_what_the_report_calls_it(tracelab, word, snapshot):
    ran = tracelab("explain", word)
    assert ran.out.splitlines()[0] == snapshot
    assert ran.out == snapshot


def test_a_word_with_several_meanings_has_all_of_them(tracelab):
    out = tracelab("explain", "launch").out
    lines = [line for line in out.splitlines() if line.startswith("launch: ")]
    titles = [line.partition(",")[0] for line in lines]
    assert "launch: a cause of idle time" in titles
    assert "launch: a binding constraint" in titles


def test_several_words_are_explained_in_turn(tracelab):
    out = tracelab("explain", "exposed", "TL101", "critical").out
    titles = ["exposed: a term", "TL101: ", "critical: a severity"]
    places = [out.index(title) for title in titles]
    assert places == sorted(places)


def test_two_words_can_be_one_term(tracelab):
    assert tracelab("explain", "caused", "idle").out.startswith("caused idle: a term\n")
    assert tracelab("explain", "caused_idle_ns").out.startswith("caused idle: a term\n")


def test_a_group_is_listed(tracelab):
    out = tracelab("explain", "causes").out
    assert out.startswith("Causes of idle time\n")
    assert "  host_busy (CPU-bound): " in out


def test_an_unknown_word_is_wrong_usage_and_names_those_like_it(tracelab, snapshot):
    ran = tracelab("explain", "exposed", "TL104")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == snapshot
    assert "did you mean exposed?" in tracelab("explain", "exposd").err


def test_a_word_like_no_other(tracelab, snapshot):
    ran = tracelab("explain", "qqqqq")
    assert ran.code == 2
    assert ran.err == snapshot
