"""Findings: rules, which turn the context of a window into findings, and what their fixes save."""
