"""The files in which twenty tasks of a newcomer begin are there, by these names."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_files_of_twenty_tasks_exist():
    tasks = tomllib.loads(Path(__file__).with_name("where.toml").read_text(encoding="utf-8"))[
        "task"
    ]
    assert len(tasks) == 20
    assert [x["is"] for x in tasks if not (ROOT / "tracelab" / x["is"]).is_file()] == []
