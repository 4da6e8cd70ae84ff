"""What a trace says, in order and linked; no judgement."""
