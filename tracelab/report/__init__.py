"""The result of an analysis: its data, how it is built, loaded and looked at."""
