"""The definition of wait and transfer, one member of one match at a time."""

from tracelab.job.matching import ENDS_TOGETHER


def slow_waits(parts, matches, clocks):
    """Of each member (arrival, wait, transfer); of each match (late member, margin) or None."""
    members = [
        [(int(matches.part_index[x]), int(matches.operation_index[x])) for x in range(first, end)]
        for first, end in zip(matches.first[:-1].tolist(), matches.first[1:].tolist(), strict=True)
    ]

    def arrival(part, index):
        [time] = clocks.job_ns_of(part, parts[part].start_ns[index : index + 1]).tolist()
        return time

    def length(part, index):
        return int(parts[part].end_ns[index] - parts[part].start_ns[index])

    def awaited(member, match):
        """When the last that a member needs in one match arrived."""
        arrivals = [arrival(*other) for other in match]
        end = arrival(*member) + length(*member)
        if max(arrivals) > end and parts[member[0]].operation[member[1]] not in ENDS_TOGETHER:
            return max(time for time in arrivals if time <= end)
        return max(arrivals)

    def awaited_by_kernel(member):
        """A kernel of several operations waits for the last of all their peers."""
        part, index = member
        return max(
            awaited(other, match)
            for match in members
            for other in match
            if other[0] == part and parts[part].kernel_id[other[1]] == parts[part].kernel_id[index]
        )

    rows, late = [], []
    for match in members:
        for member in match:
            wait = min(max(awaited_by_kernel(member) - arrival(*member), 0), length(*member))
            rows.append((arrival(*member), wait, length(*member) - wait))
        errors = [clocks.alignment.per_rank[part].residual_ns or 0 for part, _ in match]
        times = [arrival(*member) for member in match]
        last = max(range(len(match)), key=lambda x: (times[x], x))
        earliest = min(range(len(match)), key=lambda x: (times[x], x))
        apart = times[last] - times[earliest]
        margin = times[last] - sorted(times)[-2]
        late.append((last, margin) if apart > errors[last] + errors[earliest] else None)
    return rows, late
