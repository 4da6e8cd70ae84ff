"""Reader: a file becomes a `Trace`; nothing else knows the keys of the JSON."""
