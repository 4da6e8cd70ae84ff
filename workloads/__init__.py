"""Small programs with a known defect and its fix, each a lesson about overlap on a GPU."""
