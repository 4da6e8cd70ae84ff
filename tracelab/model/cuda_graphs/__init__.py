"""CUDA graphs: where they were captured, and how their nodes depend on each other."""
