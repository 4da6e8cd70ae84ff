"""Several ranks as one job: collectives on one clock, and ranks that make others wait."""
