"""Model of a trace: its events in order and linked; no judgement."""
