"""Algorithms: one file each; see `federation/algorithm.py`."""
