"""The operating system: processes, signals, the terminal, files."""
