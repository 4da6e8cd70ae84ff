"""Errors, and the exit code of each on the command line."""

from __future__ import annotations

from typing import ClassVar


class TracelabError(Exception):
    """Base of every error that tracelab raises on purpose; its text is a sentence for the user.

    The sentence names an `option` in backticks, if any, as Python calls it; a command line says its
    own flag instead.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, sentence: str, *, option: str | None = None) -> None:
        super().__init__(sentence)
        self.option = option


class UsageError(TracelabError):
    """The request makes no sense: an unknown step, a bad pattern, a picture of nothing."""

    exit_code = 2


class UnreadableInputError(TracelabError):
    """The input is missing, is not a profiler trace, or holds nothing that can be analyzed."""

    exit_code = 3


class MissingSupportError(TracelabError):
    """Something outside tracelab is needed and absent: a GPU, torch, an optional package."""

    exit_code = 4

    def __init__(
        self, sentence: str, *, option: str | None = None, extra: str | None = None
    ) -> None:
        install = f": pip install 'tracelab-gpu[{extra}]'" if extra else ""
        super().__init__(sentence + install, option=option)


class OutputError(TracelabError):
    """A result cannot be written: the disk is full, say, or the file is one that is read."""

    exit_code = 5


class CrashError(TracelabError):
    """A bug in tracelab: nothing can be said of the input."""

    exit_code = 70  # EX_SOFTWARE of sysexits.h


def reason_of(error: Exception) -> str:
    """The reason that the operating system or a library gives, in one line."""
    message = getattr(error, "strerror", None) or str(error) or type(error).__name__
    line = str(message).splitlines()[0]
    return line if line == type(error).__name__ else line.lower()
