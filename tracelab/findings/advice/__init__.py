"""Advice about launches that come too late, of what the trace shows to be possible."""
