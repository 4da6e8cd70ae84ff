"""Two reports, or a report and a budget, held against each other."""
