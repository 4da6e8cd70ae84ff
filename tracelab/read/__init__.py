"""From a file to a `Trace`; nothing else knows the keys of the JSON."""
