"""The user's program: call sites, source lines, modules."""
