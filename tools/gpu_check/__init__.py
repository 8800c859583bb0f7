"""Correctness, targets and profile on a machine with a GPU."""
