"""For tests of the rules: from hand-made events to their findings, told in few words."""

import pytest

from tests.build.files import write
from tests.build.finding_events import US
from tests.short_fixes import assert_short
from tracelab import analyze
from tracelab.base.options import Options
from tracelab.findings.finding import INFO

BY_SHARE = Options(prices=False)  # what a rule finds, and how much of the time is attributed to it


@pytest.fixture
def findings(tmp_path):
    """The findings about the program of the trace of some events."""

    def find(*events, options=None, **keys):
        path = write(tmp_path / "hand.json", events, **keys)
        report = analyze(path, options or BY_SHARE)
        for finding in report.findings:
            assert_short(finding.fix_short)
        return [x for x in report.findings if x.about == "program"]

    return find


@pytest.fixture
def summaries(findings):
    """Rule, cause, severity and bound (us) of each finding about the program."""

    def find(*events, **keys):
        return [(x.rule, x.cause, x.severity, x.bound_ns / US) for x in findings(*events, **keys)]

    return find


@pytest.fixture
def alarms(tmp_path):
    """Rule, cause and bound (us) of all findings above info."""

    def find(*events):
        report = analyze(write(tmp_path / "hand.json", events), BY_SHARE)
        return [(x.rule, x.cause, x.bound_ns / US) for x in report.findings if x.severity != INFO]

    return find


@pytest.fixture
def lacks_of_files():
    """What some files lack: rule, severity and count of each finding about the trace."""

    def find(*paths, options=None):
        report = analyze(list(paths), options or BY_SHARE)
        return [(x.rule, x.severity, x.where.count) for x in report.findings if x.about == "trace"]

    return find


@pytest.fixture
def lacks(tmp_path, lacks_of_files):
    """What the trace of some events lacks."""

    def find(*events, **keys):
        return lacks_of_files(write(tmp_path / "hand.json", events, **keys))

    return find
