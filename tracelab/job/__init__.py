"""What the ranks of one job do together: collectives on one clock, and who makes others wait."""
