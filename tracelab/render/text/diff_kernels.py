"""The table of ``tracelab diff`` about GPU activities by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from tracelab.comparison.diff import GONE, NEW, KernelDiff
from tracelab.render.text.cells import PART, time_text
from tracelab.render.text.diff_words import counts_text, difference_text, judgment
from tracelab.render.text.hints import FULL_NAMES_IN_JSON
from tracelab.render.text.sections import Column, Fit, Section
from tracelab.render.words import ELLIPSIS, bare_name

_MOST_KERNELS = 10
_LONGEST_PART = 48
_NAMESPACE = re.compile(r"(?:\(anonymous namespace\)|\b\w+)::")


def kernel_table(kernels: Sequence[KernelDiff], basis: str) -> Section:
    """The names whose time changed most; if all of that is noise, those that are new or gone."""
    title = "GPU activities by name" + (", per step that launched them" if basis == "step" else "")
    changed = [kernel for kernel in kernels if kernel.total.difference_ns]
    is_noise = not any(kernel.total.beyond_noise for kernel in changed)
    if is_noise:
        changed = [kernel for kernel in changed if kernel.state]
    shown = changed[:_MOST_KERNELS]
    labels = kernel_labels([kernel.name for kernel in shown])
    return Section(
        title,
        (_only_noise(kernels),) if is_noise else (),
        columns=(
            Column("name", Fit.LABEL),
            *(Column(heading) for heading in ("count", "before", "after", "difference", "")),
        ),
        rows=tuple(
            (
                label,
                counts_text(kernel.before_count, kernel.after_count),
                time_text(kernel.total.before_ns),
                time_text(kernel.total.after_ns),
                difference_text(kernel.total),
                _judgment(kernel),
            )
            for kernel, label in zip(shown, labels, strict=True)
        ),
        notes=_notes(kernels, shown) if shown else (),
    )


def _judgment(kernel: KernelDiff) -> str:
    """What a change is; that a kernel came or went is no noise, however short it is."""
    if not kernel.state:
        return judgment(kernel.total)
    return kernel.state if kernel.total.beyond_noise else f"{kernel.state}, below the noise"


def _notes(kernels: Sequence[KernelDiff], shown: Sequence[KernelDiff]) -> tuple[str, ...]:
    """How many are not shown, and how many of those came or went."""
    rest = len(kernels) - len(shown)
    if not rest:
        return ()
    counts = {
        state: sum(kernel.state == state for kernel in kernels)
        - sum(kernel.state == state for kernel in shown)
        for state in (NEW, GONE)
    }
    states = ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
    of_them = f" ({states})" if states else ""
    return (f"{rest:,} more, which changed less{of_them}; {FULL_NAMES_IN_JSON}.",)


def kernel_labels(names: Sequence[str]) -> list[str]:
    """Bare names; those that would look alike are followed by the part in which they differ.

    >>> kernel_labels(["void f<int>(int)", "void f<float>(float)", "gemm"])
    ['f · …int>(int)', 'f · …float>(float)', 'gemm']
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(bare_name(name), []).append(name)
    labels: list[str] = []
    for name in names:
        bare = bare_name(name)
        distinct = _NAMESPACE.sub("", name[_common_letters(alike[bare]) :])[:_LONGEST_PART]
        looks_alike = len(alike[bare]) > 1
        labels.append(f"{bare}{PART}{ELLIPSIS}{distinct}" if looks_alike else bare)
    return labels


def _common_letters(names: Sequence[str]) -> int:
    """How many letters the names begin with in common, up to where a word begins."""
    common = sum(
        1 for _ in takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False))
    )
    return max(names[0].rfind(mark, 0, common) + 1 for mark in "<:, _(")


def _only_noise(kernels: Sequence[KernelDiff]) -> str:
    most = max(kernels, key=lambda kernel: abs(kernel.total.difference_ns), default=None)
    if most is None or not most.total.difference_ns:
        return "The same on both sides."
    return (
        f"The time of none of {len(kernels):,} changed by more than the noise; the most: "
        f"{bare_name(most.name)}, {difference_text(most.total)}."
    )
