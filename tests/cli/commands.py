"""The command line in a process of its own, for what only a real process shows."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def tracelab(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command; stdout and stderr are captured unless they are given.

    Args:
        arguments: those of the command, texts, paths or bytes.
        options: of `subprocess.run`.
    """
    command = [sys.executable, "-m", "tracelab", *arguments]
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 300, **options}
    return subprocess.run(command, check=False, **given)
