"""Callbacks that record steps of a training loop which a framework runs."""
