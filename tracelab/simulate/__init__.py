"""What-if: the steady steps replayed with a change, and what they would take."""
