from tracelab.findings.registry import RULES


def test_all_rules_are_listed_in_order(tracelab):
    ran = tracelab("explain")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()] == sorted(x.id for x in RULES)


def test_a_rule_is_explained_with_an_example(tracelab):
    ran = tracelab("explain", "tl203")
    assert ran.code == 0
    titles = [line for line in ran.out.splitlines() if line and not line.startswith(" ")]
    assert titles == [
        "TL203: streams serialised by an event wait that comes too early or is too wide",
        "Why it matters",
        "How it decides",
        "Before",
        "After",
    ]
    assert all(len(line) <= 100 for line in ran.out.splitlines())


def test_what_is_about_the_trace_has_no_example(tracelab):
    assert "Before" not in tracelab("explain", "TL903").out


def test_unknown_rule_is_wrong_usage(tracelab):
    ran = tracelab("explain", "TL999")
    assert ran.code == 2
    assert "TL101, TL102" in ran.err
