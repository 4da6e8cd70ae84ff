"""What can be done about it: one file per rule, from the context of a window to findings."""
