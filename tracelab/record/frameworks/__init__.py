"""Callbacks that record steps of a training loop which a framework runs; each needs that one alone.

- `lightning`: for Lightning's ``Trainer``
- `transformers`: for the Hugging Face ``Trainer``
- `training`: what the two have in common

A loop of one's own, with Accelerate or without, is recorded with `tracelab.capture`.
"""
