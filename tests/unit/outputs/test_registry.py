"""The outputs that can be written: names of files, one for all or one for each."""

import pickle
from pathlib import Path

import pytest

from tests.bundled_traces import FOLDER
from tracelab.analysis.reports import analyze_file, merge_results
from tracelab.base.errors import UsageError
from tracelab.base.options import Options
from tracelab.outputs.output import Request
from tracelab.outputs.registry import OUTPUTS, paths_of, reduce_file, write_files
from tracelab.read.sources import find_sources

NAMES = {"png": "step.png", "html": "step.HTML", "perfetto": "step.json.gz"}


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("png", ["out/step.png", "out/step-0.png", "out/step-1.png"]),
        ("html", ["out/step.HTML"]),
        ("perfetto", ["out/step-0.json.gz", "out/step-1.json.gz"]),
    ],
)
def test_files_of_several_traces_are_numbered_where_each_has_one(name, paths):
    path = Path("out") / NAMES[name]
    assert list(map(str, paths_of({name: Request(path, 2)}))) == paths
    assert paths_of({name: Request(path, 1)}) == [path]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", ["step.txt", "", ".png", ".html", ".json"])
def test_other_names_are_refused(name, path):
    with pytest.raises(UsageError, match=r"\.png|\.html|\.json"):
        paths_of({name: Request(Path(path), 1)})


def test_several_outputs_share_the_scene_of_a_file(tmp_path):
    [source] = find_sources([str(FOLDER / "events_item.pt.trace.json.gz")])
    requests = {output.name: Request(tmp_path / NAMES[output.name], 1) for output in OUTPUTS}

    def reduce(analysis):
        return pickle.loads(pickle.dumps(reduce_file(analysis, requests)))

    options = Options(cache=False)
    results = [analyze_file(source, options, then=reduce)]
    assert results[0].more["html"].scene is results[0].more["perfetto"].scene
    report = merge_results(results, [source.path], options)
    written = write_files(report, results, requests)
    assert [text.split()[0] for text in written] == ["drew", "wrote", "wrote", "open"]
    assert {path.name for path in tmp_path.iterdir()} == set(NAMES.values())
