"""What holds for every fix in short."""

import re

from tracelab.findings.finding import MAX_SHORT_LETTERS

# The verbs that a short fix may begin with.
_VERBS = re.compile(
    "Allocate|Allow|Average|Call|Capture|Check|Checkpoint|Choose|Clip|Compare|Compile"
    "|Compute|Convert|Copy|Count|Create|Decide|Evaluate|Fill|Find|Freeze|Fuse|Give|Index"
    "|Issue|Keep|Launch|Leave|Let|Load|Log|Look|Make|Mark|Merge|Move|Omit|Overlap|Pad|Pass|Pin"
    "|Prefetch|Print|Raise|Read|Record|Remove|Replace|Replay|Run|Scale|Send|Serve|Set|Sort"
    "|Split|Stack|Submit|Synchronize|Try|Tune|Unset|Update|Use|Wait|Write"
)


def assert_short(text):
    """It is whole and imperative, and fits into two lines of a terminal."""
    assert 1 <= len(text) <= MAX_SHORT_LETTERS, (len(text), text)
    assert _VERBS.fullmatch(re.match(r"\w+", text)[0]), text
    assert "…" not in text
    assert "tracelab explain" not in text
