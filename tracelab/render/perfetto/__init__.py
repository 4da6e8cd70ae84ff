"""A scene as events for Perfetto and chrome://tracing, to be put into the user's own trace."""
