"""The captures that the default run looks at, chosen so that little is lost.

``python -m tests.corpus`` prints ``corpus.txt`` anew: a greedy set cover of all bundled captures,
over every workload (with a planted defect, where one is bundled), every rule and cause found in any
of them, recorded and plain files, and 1, 2 and 4 ranks. ``pytest --corpus=all`` looks at all.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.bundled_traces import FOLDER, MANIFEST, report_of

CAPTURES: dict[str, tuple[Path, ...]] = {}
LINES = {}  # of the manifest, by capture
for _line in MANIFEST:
    _first = _line["files"][0].split(".")[0]
    _name = _first if len(_line["files"]) == 1 else _first.rpartition("_rank")[0]
    CAPTURES[_name] = tuple(FOLDER / file for file in _line["files"])
    LINES[_name] = _line

# Each capture of the default run, and what it adds to those above it.
SMALL = dict(
    line.split(": ") for line in Path(__file__).with_suffix(".txt").read_text().splitlines()
)


def chosen(which: str) -> dict[str, tuple[Path, ...]]:
    """The files of each capture of a corpus, "small" or "all", in the manifest's order."""
    return {name: files for name, files in CAPTURES.items() if which == "all" or name in SMALL}


def cases(rows: Iterable[Sequence[Any]], few: Container[str] = SMALL) -> list[Any]:
    """The rows of a table for `parametrize`; each begins with the name of a capture or of a rank.

    The default run looks at those of few captures.
    """
    others = pytest.mark.whole_corpus
    return [
        pytest.param(*row, marks=() if row[0].split("_rank")[0] in few else others) for row in rows
    ]


def features(name: str) -> set[str]:
    """What a capture can show, each a word or two.

    >>> sorted(features("events_item"))
    ['TL101 host_sync', 'TL205 no_free_sm', 'events', 'one rank, recorded']
    """
    line, files = LINES[name], CAPTURES[name]
    ranks = {1: "one rank", 2: "2 ranks", 4: "4 ranks"}[len(files)]
    how = "plain" if "--plain" in line["arguments"] else "recorded"
    found = {f"{finding.rule} {finding.cause}" for finding in report_of(*files).findings}
    has_planted = any(
        other["expect"]["findings"] for other in MANIFEST if other["workload"] == line["workload"]
    )
    if line["expect"]["findings"] or not has_planted:
        found.add(line["workload"])
    return found | {f"{ranks}, {how}"}


def choose() -> dict[str, str]:
    """Captures that have every feature, the one with most new ones first, fewest files if equal.

    Left out is in the end what the others do without.
    """
    shown = {name: features(name) for name in CAPTURES}
    every = set().union(*shown.values())
    chosen: list[str] = []
    while missing := every.difference(*(shown[name] for name in chosen)):
        chosen.append(
            max(sorted(shown), key=lambda name: (len(shown[name] & missing), -len(CAPTURES[name])))
        )
    for name in tuple(chosen):
        others = [other for other in chosen if other != name]
        if not every.difference(*(shown[other] for other in others)):
            chosen = others
    return {
        name: "; ".join(sorted(shown[name].difference(*(shown[x] for x in chosen[:place]))))
        for place, name in enumerate(chosen)
    }


if __name__ == "__main__":
    for name, reason in choose().items():
        print(f"{name}: {reason}")
