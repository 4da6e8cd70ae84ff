from tracelab.findings.candidates import most_expensive


def test_evidence_is_the_most_expensive_first_each_once_and_not_all():
    assert most_expensive([4, 7, 5, 7], [10, 30, 10, 20]) == (7, 4, 5)
    assert most_expensive(range(100), range(100)) == tuple(range(99, 79, -1))
