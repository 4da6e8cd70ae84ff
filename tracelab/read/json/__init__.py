"""The events of torch.profiler's JSON."""
