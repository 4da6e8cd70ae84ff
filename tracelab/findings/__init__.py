"""What can be done about it: one file per rule, from facts to findings."""
