"""Turn a report, or a timeline, into something to read or look at."""
