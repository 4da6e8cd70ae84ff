from tracelab.findings.candidates import MOST_EVIDENCE, most_expensive


def test_evidence_is_the_most_expensive_first_each_once_and_not_all():
    assert most_expensive([4, 7, 5, 7], [10, 30, 10, 20]) == (7, 4, 5)
    assert len(most_expensive(range(100), range(100))) == MOST_EVIDENCE
