"""Callbacks that record steps of a training loop which a framework runs; each needs that one alone.

A loop of one's own, with Accelerate or without, is recorded with `tracelab.capture`.
"""
