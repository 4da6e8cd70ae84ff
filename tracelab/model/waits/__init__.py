"""Waits of streams for events, and the queues between."""
