"""A list of stages, each a function of the results of those before it, and how it is run.

A stage's parameters are named after results, so that the list can be read from the top, timed stage
by stage, and extended from outside.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tracelab.base.arrays import OneLine


@dataclass(frozen=True, slots=True, repr=False)
class Stage(OneLine):
    """One stage of the analysis.

    Attributes:
        name: of its result.
        run: the function. Its parameters are names of results of stages before it, or ``source``,
            ``options``, ``measures``, ``rules``, ``remedies`` and ``stages``, which are given.
    """

    name: str
    run: Callable[..., Any]


def run_stages(stages: Iterable[Stage], given: Mapping[str, Any]) -> dict[str, Any]:
    """Run stages in their order.

    Args:
        stages: the stages, each one after those whose results it takes.
        given: what there is before the first of them, by name.

    Returns:
        what was given, and every result by its stage's name.

    Example:
        >>> run_stages([Stage("double", lambda number: 2 * number)], {"number": 21})["double"]
        42
    """
    results = dict(given)
    for stage in stages:
        results[stage.name] = call(stage.run, results)
    return results


def call(function: Callable[..., Any], results: Mapping[str, Any]) -> Any:
    """Call a function with the results that its parameters are named after.

    A parameter named ``results`` gets all of them; one with a default may be missing.

    >>> call(lambda graph, windows=(): (graph, windows), {"graph": "g", "trace": "t"})
    ('g', ())
    """
    arguments = {}
    for name, is_needed in _parameters(function):
        if name == "results":
            arguments[name] = results
        elif name in results or is_needed:
            arguments[name] = results[name]
    return function(**arguments)


@cache
def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, bool], ...]:
    """The names of a function's parameters, and whether each has no default."""
    parameters = inspect.signature(function).parameters.values()
    return tuple((x.name, x.default is inspect.Parameter.empty) for x in parameters)
