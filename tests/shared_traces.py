"""For tests on real traces: those beside the repository, too large and not ours to keep in it."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / ".." / "shared" / "real_traces"
PATHS = sorted(FOLDER.glob("*.json.gz"))

needs_real_traces = pytest.mark.skipif(not PATHS, reason=f"no real traces in {FOLDER}")
# Small ones in the default run: others take up to a hundred times as long. Where there is none, one
# is skipped, and why.
each_real_trace = pytest.mark.parametrize(
    "real_trace",
    [
        pytest.param(
            path,
            id=path.name.removesuffix(".json.gz"),
            marks=pytest.mark.slow if path.stat().st_size > 100_000 else (),
        )
        for path in PATHS
    ]
    or [pytest.param(None, marks=needs_real_traces)],
)

# Every kernel in them whose name begins so is communication, and no other.
COMMUNICATION = (
    "ncclDevKernel_",
    "ncclKernel_",
    "void dpsk::ep::",
    "void (anonymous namespace)::multimem_all_reduce_kernel<",
)


def path_of(name: str) -> str:
    """The path of one of them, by its name without the ending; skips the test without it."""
    path = FOLDER / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return str(path)
