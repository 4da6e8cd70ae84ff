"""Pure functions of a timeline and its graph; each returns a frozen result that cites event ids."""
