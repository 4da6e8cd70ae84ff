"""Record a program: the only subpackage that imports torch, and only once something is recorded."""
