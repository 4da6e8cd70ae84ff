"""What is published: the wheel, the names of its extras, and what they install."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest

from tracelab.cli.check import _TRACE_NAME

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
MAX_WHEEL_BYTES = 1_000_000
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "tracelab", "workloads")


def build(kind, folder, output):
    """Build a distribution of a folder without a network; return its path."""
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(output)!r}))"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return output / ran.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that is built from the source distribution, as an index would get both."""
    setuptools = pytest.importorskip("setuptools", reason="building needs setuptools")
    if int(setuptools.__version__.partition(".")[0]) < 77:
        pytest.skip("building needs setuptools 77 or newer: install .[dev]")
    folder = tmp_path_factory.mktemp("build")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder)
    with tarfile.open(build("sdist", folder, folder)) as sdist:
        sdist.extractall(folder / "sdist", filter="data")
    [source] = (folder / "sdist").iterdir()
    path = build("wheel", source, folder)
    assert path.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_the_wheel_has_the_package_alone_and_is_small(wheel):
    names = {Path(name) for name in wheel.namelist()}
    assert {name.parts[0].partition("-")[0] for name in names} == {"tracelab", "tracelab_gpu"}
    modules = {path.relative_to(ROOT) for path in (ROOT / "tracelab").rglob("*.py")}
    modules.remove(Path("tracelab", "docs", "conf.py"))
    modules |= {Path("tracelab", x.relative_to(ROOT)) for x in (ROOT / "workloads").glob("*.py")}
    assert {name for name in names if name.suffix == ".py"} == modules
    assert not any({"docs", "tests", "traces"} & {*name.parts} for name in names)
    assert Path(wheel.filename).stat().st_size < MAX_WHEEL_BYTES


def test_the_wheel_has_every_file_that_the_package_opens(wheel):
    kinds = {".toml", ".j2", ".css", ".js", ".typed"}
    files = {x for x in (ROOT / "tracelab").rglob("*") if "docs" not in x.parts}
    opened = {x.relative_to(ROOT) for x in files if x.suffix in kinds}
    assert len(opened) > 10
    assert opened <= {Path(name) for name in wheel.namelist()}


def test_metadata_names_the_project(wheel):
    [metadata] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    found = BytesParser().parsebytes(wheel.read(metadata))
    assert found["Name"] == "tracelab-gpu"
    urls = dict(line.split(", ") for line in found.get_all("Project-URL"))
    assert urls == PROJECT["urls"]
    assert {*found.get_all("Provides-Extra")} == {*EXTRAS}


def test_all_is_every_extra_of_users():
    [everything] = EXTRAS["all"]
    users = [name for name in EXTRAS if name != "all" and not name.startswith("dev")]
    assert everything == f"tracelab-gpu[{','.join(sorted(users))}]"


def test_extras_that_messages_and_documents_name_exist():
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "notebooks").glob("*.ipynb")]
    files += [x for x in (ROOT / "tracelab").rglob("*") if x.suffix in {".py", ".md"}]
    pattern = re.compile(r"""(?:tracelab[a-z-]*|\s'?\.)\[([a-z,-]+)\]|\bextra="([a-z-]+)\"""")
    named = {
        (extra, path.name)
        for path in files
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
        for extra in (match[1] or match[2]).split(",")
    }
    assert {extra for extra, _ in named} >= {"cluster", "dev", "fast", "record", "remote"}
    assert [name for name in named if name[0] not in EXTRAS] == []


def test_citation_and_documents_name_the_project_as_the_metadata_does():
    yaml = pytest.importorskip("yaml", reason="reading CITATION.cff needs PyYAML: install .[dev]")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= {*citation}
    assert citation["repository-code"] == PROJECT["urls"]["Homepage"]
    assert citation["authors"] == PROJECT["authors"]
    for field, name in (("abstract", "description"), ("license",) * 2, ("keywords",) * 2):
        assert citation[field] == PROJECT[name]


def test_hook_is_about_files_that_check_takes_from_a_folder():
    yaml = pytest.importorskip("yaml", reason="reading the hook needs PyYAML: install .[dev]")
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["id"] in (ROOT / "tracelab/docs/reference/check.md").read_text()
    assert hook["entry"] == "tracelab check"
    assert hook["files"] == _TRACE_NAME.pattern
