"""For tests of remedies: a program of steps that are alike, and what is recognized in it."""

from functools import partial
from itertools import count

from tests.build.rows import US, graph, kernel, launch, step
from tracelab.findings.remedies import REMEDIES as ALL
from tracelab.findings.remedy import recognize

# Of reads, waits and work of the CPU that programs of these tests have besides.
GENERAL = ("computed-on-cpu", "scalar-read", "synchronize")
REMEDIES = tuple(remedy for remedy in ALL if remedy.id not in GENERAL)
STEPS, LENGTH = 5, 20_000 * US


class Program:
    """Rows of one step: times are us after its start; launches and activities get correlations."""

    def __init__(self, start_ns, number):
        self.number, self.rows, self._start_ns = number, [], start_ns
        self._correlations = count(1_000 * number + 1)

    def add(self, make, name, start, end, **more):
        self.rows.append(make(name, *self._times(start, end), **more))

    def launch(
        self, start, end, *, make=kernel, name="gemm", after=10, lasts=20, call=None, **more
    ):
        """A call, and what it launches so many us after its start."""
        correlation = next(self._correlations)
        thread = {"thread": more.pop("thread")} if "thread" in more else {}
        called = {"name": call} if call else {}
        self.rows.append(launch(*self._times(start, end), correlation, **called, **thread))
        times = self._times(start + after, start + after + lasts)
        self.rows.append(make(*times, name, correlation=correlation, **more))

    def _times(self, start, end):
        return self._start_ns + round(start * US), self._start_ns + round(end * US)


def back_through(name, node):
    """The "args" that number an operator's calls, and its nodes from the last open call on."""

    def arguments(trace, event_ids):
        numbers, made = {}, []
        for event, of_event in enumerate(trace.name_index.tolist()):
            if trace.strings[of_event] == name:
                numbers[event] = len(numbers)
                made.append(numbers[event])
            elif trace.strings[of_event] == node and made:
                numbers[event] = made.pop()
        known = [event for event in event_ids if event in numbers]
        return {x: {"Sequence number": numbers[x], "Fwd thread id": 1} for x in known}

    return arguments


def recognized(
    make, *, in_steps=range(STEPS), steps=STEPS, outside=(), remedies=REMEDIES, arguments=None
):
    """Remedy to how many host events it is recognized by.

    Args:
        make: adds to a `Program` what each of some steps holds, beside one kernel.
        in_steps: the steps that hold it.
        steps: how many steps there are.
        outside: more rows.
        remedies: those that are looked for.
        arguments: a function of a trace and event ids: the "args" of these by event id.
    """
    rows = list(outside)
    for number in range(steps):
        start_ns = number * LENGTH
        rows.append(step(number, start_ns, start_ns + LENGTH))
        program = Program(start_ns, number)
        program.launch(19_000, 19_005, after=10, lasts=900)
        if number in in_steps:
            make(program)
        rows += program.rows
    built = graph(*rows)
    read = {} if arguments is None else {"arguments": partial(arguments, built.host.timeline.trace)}
    found = recognize(built, remedies, **read)
    return {name: len(events) for name, events in found.places.items()}
